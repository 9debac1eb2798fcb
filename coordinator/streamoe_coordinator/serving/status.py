"""What a server tells of itself: health, telemetry, metrics' figures, all from the same look at it.

Owns that look, `Look`, and the JSON of /health and /api/telemetry. Refuses to know HTTP.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from streamoe_engine.telemetry import Snapshot

from ..report import layers_json, plan_json
from ..runs_tokens import BandStatus
from .api import figures_of
from .scheduler import Status
from .served import Served

SCHEMA = 1
_LAYER_KEYS = ("layer", "hit", "guess", "miss", "wasted", "bytes_read", "wait_s")
_FRESH_S = 0.1


@dataclass(frozen=True, slots=True)
class Look:
    """The server at one moment. bands: empty until the model is open."""

    status: Status
    at_s: float
    bands: tuple[BandStatus, ...]
    counts: Snapshot | None

    @property
    def budget_bytes(self) -> int | None:
        """The cap of this process, or of all bands together."""
        return sum(band.budget_bytes for band in self.bands) if self.bands else None

    @property
    def footprint_bytes(self) -> int:
        """What the systems say all bands' processes cost now."""
        return sum(band.footprint_bytes for band in self.bands)

    @property
    def peak_bytes(self) -> int:
        """The sum of their peaks."""
        return sum(band.peak_bytes for band in self.bands)


class Watch:
    """Looks at one server, at most ten times a second however many ask."""

    def __init__(self, served: Served, *, needs_key: bool, max_waiting: int, checkpoint_bytes: int) -> None:
        self._served, self._needs_key = served, needs_key
        self._max_waiting, self._checkpoint_bytes = max_waiting, checkpoint_bytes
        self._look: Look | None = None

    def look(self) -> Look:
        """The server now, or a tenth of a second ago."""
        now_s, scheduler = time.perf_counter(), self._served.scheduler
        if self._look is None or now_s - self._look.at_s > _FRESH_S or self._look.status != scheduler.status:
            band = scheduler.band
            bands = () if band is None else tuple(band.bands())
            self._look = Look(scheduler.status, now_s, bands, None if band is None else band.telemetry())
        return self._look

    def health(self) -> tuple[dict[str, Any], bool, bool]:
        """The object of /health; whether the server lives; whether every band answers."""
        look, error = self.look(), self._served.scheduler.error
        nodes = [band_json(band) for band in look.bands]
        is_ok = look.status == "ok"
        body = {
            "status": look.status,
            "plan_ok": error is None or error.code != "PlanDoesNotFit",
            "model": self._served.model_id,
            "nodes": nodes,
            "needs_key": self._needs_key,
            "error": None if error is None else figures_of(error),
        }
        return body, is_ok, is_ok and all(band.state == "up" for band in look.bands)

    def telemetry(self) -> dict[str, Any]:
        """The object of /api/telemetry."""
        look, scheduler = self.look(), self._served.scheduler
        load = scheduler.load  # before the totals: an end is counted before its place is free
        meter, (num_checkpoints, checkpoint_bytes) = scheduler.meter, scheduler.checkpoints
        rows = [] if look.counts is None else layers_json(look.counts)
        plan = look.bands[0].plan if len(look.bands) == 1 else None
        return {
            "schema": SCHEMA,
            "status": look.status,
            "model": self._served.model_id,
            "time_s": round(time.time(), 3),
            "budget_bytes": look.budget_bytes,
            "footprint_bytes": look.footprint_bytes,
            "peak_bytes": look.peak_bytes,
            "plan": None if plan is None else plan_json(plan),
            "layers": {key: [row[key] for row in rows] for key in _LAYER_KEYS},
            "tokens_run": 0 if look.counts is None else look.counts.tokens_run,
            "tokens_per_s": meter.tokens_per_s,
            "requests": {
                "running": load.num_running,
                "waiting": load.num_waiting,
                "max_running": 0 if scheduler.band is None else scheduler.band.num_sequences,
                "max_waiting": self._max_waiting,
            },
            "prefill": [
                {
                    "id": request_id,
                    "done_tokens": progress.done_tokens,
                    "total_tokens": progress.total_tokens,
                    "cached_tokens": progress.cached_tokens,
                    "elapsed_s": round(progress.elapsed_s, 3),
                }
                for request_id, progress in scheduler.prefills
            ],
            "totals": {
                "requests": meter.num_requests,
                "prompt_tokens": meter.prompt_tokens,
                "cached_tokens": meter.cached_tokens,
                "generated_tokens": meter.generated_tokens,
                "cancelled": meter.num_cancelled,
                "failed": meter.num_failed,
            },
            "checkpoints": {
                "count": num_checkpoints,
                "bytes": checkpoint_bytes,
                "budget_bytes": self._checkpoint_bytes,
            },
            "bands": [{**band_json(band), "plan": _plan_of(band)} for band in look.bands],
        }


def band_json(band: BandStatus) -> dict[str, Any]:
    """One band, without its plan."""
    return {
        "name": band.name,
        "first_layer": band.first_layer,
        "last_layer": band.last_layer,
        "state": band.state,
        "rtt_ms": band.rtt_ms,
        "budget_bytes": band.budget_bytes,
        "footprint_bytes": band.footprint_bytes,
        "peak_bytes": band.peak_bytes,
        "detail": band.detail,
    }


def _plan_of(band: BandStatus) -> dict[str, Any]:
    if band.plan is not None:
        return plan_json(band.plan)
    items = [{"name": item.name, "bytes": item.num_bytes, "why": item.why} for item in band.items]
    return {"schema": SCHEMA, "budget_bytes": band.budget_bytes, "items": items}

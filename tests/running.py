"""Opening bands at chosen pool sizes and running tokens through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from streamoe_engine.band import Band, BandOptions, plan_request
from streamoe_engine.manifest import read_manifest
from streamoe_engine.plan import HostCosts, page_table_bytes, smallest_budget
from streamoe_engine.sizes import MIB
from streamoe_engine.store import ModelStore

# Not measured, so that pools have the very size a test asks for.
HOST = HostCosts(runtime_bytes=64 * MIB)


def budget_for_slots(folder: Path, options: BandOptions, extra_slots: int) -> int:
    """The cap that gives the smallest pool of these options and extra_slots more; the head is resident if it may be."""
    manifest, request = read_manifest(folder), plan_request(ModelStore(folder), options)
    request = replace(request, head="resident") if request.head == "auto" else request
    stride = max(entry.record.stride_bytes for entry in manifest.experts)
    return smallest_budget(manifest, request, HOST) + extra_slots * (stride + page_table_bytes(stride))


def open_band(folder: Path, extra_slots: int = 0, **options: object) -> Band:
    """A band whose pool is the smallest one and extra_slots more; through MLX unless a backend is named."""
    chosen = BandOptions(budget_bytes=1, **{"ctx_tokens": 256, "backend": "mlx", "host": HOST, **options})  # type: ignore[arg-type]
    return Band.open(folder, replace(chosen, budget_bytes=budget_for_slots(folder, chosen, extra_slots)))


def run_logits(band: Band, ids: Sequence[int] | np.ndarray, prompt: int) -> np.ndarray:
    """(tokens, vocabulary): the first `prompt` ids as one chunk, the rest one by one."""
    ids, state = np.asarray(ids, dtype=np.int32), band.new_state()
    pieces = [ids[:prompt], *(ids[at : at + 1] for at in range(prompt, len(ids)))]
    logits = [band.run(state, piece, "all_logits") for piece in pieces if len(piece)]
    return np.concatenate([piece for piece in logits if piece is not None])


def greedy(band: Band, prompt: Sequence[int], num_tokens: int, chunk: int | None = None) -> list[int]:
    """num_tokens greedy tokens after a prompt that is run in chunks of `chunk` (the plan's by default)."""
    state, chosen = band.new_state(), []
    step = chunk or band.plan.chunk_tokens
    for start in range(0, len(prompt), step):
        logits = band.run(state, np.asarray(prompt[start : start + step], dtype=np.int32))
    for _ in range(num_tokens):
        assert logits is not None
        chosen.append(int(logits.argmax()))
        logits = band.run(state, np.asarray(chosen[-1:], dtype=np.int32))
    return chosen

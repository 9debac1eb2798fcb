"""The server's figures for Prometheus: a collector over one look.

Owns names and labels. Refuses to count anything itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ..runs_tokens import BandStatus
from .meter import Histogram
from .served import Served
from .status import Look, Watch

# The tier of a pick by LayerCounts' name. A hit may lie in a slot lent by landing: the engine tells no difference.
_TIERS = {"hot": "hits", "prefetch": "guess_hits", "ssd": "misses"}

_BAND_LABELS = ("node", "first", "last")


class ServerCollector(Collector):
    """Every figure of one server."""

    def __init__(self, served: Served, watch: Watch) -> None:
        self._served, self._watch = served, watch

    def collect(self) -> Iterator[Metric]:
        """The metrics, from one look."""
        look = self._watch.look()
        yield from self._memory(look)
        yield from self._experts(look)
        yield from self._requests()
        up = GaugeMetricFamily("streamoe_band_up", "1 while the band answers", labels=_BAND_LABELS)
        for band in look.bands:
            up.add_metric(_labels(band), float(band.state == "up"))
        yield up
        hop = GaugeMetricFamily(
            "streamoe_hop_seconds", "the last step's way there and back, without the node's time", labels=_BAND_LABELS
        )
        for band in look.bands:
            if band.hop_s is not None:
                hop.add_metric(_labels(band), band.hop_s)
        yield hop

    def _memory(self, look: Look) -> Iterator[Metric]:
        yield GaugeMetricFamily("streamoe_budget_bytes", "the cap", look.budget_bytes or 0)
        plan = GaugeMetricFamily("streamoe_plan_bytes", "the plan's rows", labels=("node", "item"))
        for band in look.bands:
            for item in band.items:
                plan.add_metric((band.name, item.name), item.num_bytes)
        yield plan
        yield GaugeMetricFamily("streamoe_footprint_bytes", "what the system says it costs", look.footprint_bytes)
        yield GaugeMetricFamily("streamoe_footprint_peak_bytes", "the most it has cost", look.peak_bytes)
        active_bytes, cache_bytes = _mlx_bytes()
        yield GaugeMetricFamily("streamoe_mlx_active_bytes", "what MLX's allocator has given out", active_bytes)
        yield GaugeMetricFamily("streamoe_mlx_cache_bytes", "what it keeps to give out again", cache_bytes)

    def _experts(self, look: Look) -> Iterator[Metric]:
        picks = CounterMetricFamily("streamoe_expert_selected", "experts needed", labels=("layer", "tier"))
        reads = CounterMetricFamily("streamoe_expert_read_bytes", "bytes read for experts", labels=("layer",))
        wasted = CounterMetricFamily("streamoe_prefetch_wasted", "early reads nobody picked", labels=("layer",))
        for layer in look.counts.layers if look.counts is not None else ():
            name = str(layer.layer)
            for tier, count in _TIERS.items():
                picks.add_metric((name, tier), getattr(layer, count))
            reads.add_metric((name,), layer.read_bytes)
            wasted.add_metric((name,), layer.wasted)
        yield from (picks, reads, wasted)
        waited_s = 0.0 if look.counts is None else look.counts.wait_s
        yield CounterMetricFamily("streamoe_ssd_wait_seconds", "time computing stood still for reads", waited_s)

    def _requests(self) -> Iterator[Metric]:
        scheduler = self._served.scheduler
        load, meter = scheduler.load, scheduler.meter  # in this order: an end is counted before its place is free
        yield _histogram("streamoe_time_to_first_token_seconds", "from asking to the first token", meter.ttft)
        yield _histogram("streamoe_inter_token_latency_seconds", "from token to token", meter.between_tokens)
        for name, text, value in (
            ("prompt_tokens", "tokens of prompts", meter.prompt_tokens),
            ("cached_tokens", "tokens of prompts that were not run again", meter.cached_tokens),
            ("generation_tokens", "tokens generated", meter.generated_tokens),
            ("requests", "prompts begun", meter.num_requests),
            ("requests_cancelled", "requests whose client left, begun or not", meter.num_cancelled),
            ("requests_failed", "requests that an error ended, begun or not", meter.num_failed),
        ):
            yield CounterMetricFamily(f"streamoe_{name}", text, value)
        yield GaugeMetricFamily("streamoe_requests_running", "answers in the making", load.num_running)
        yield GaugeMetricFamily("streamoe_requests_waiting", "requests in line", load.num_waiting)


def registry_of(served: Served, watch: Watch) -> CollectorRegistry:
    """A registry of this server alone."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServerCollector(served, watch))
    return registry


def _labels(band: BandStatus) -> tuple[str, str, str]:
    return band.name, str(band.first_layer), str(band.last_layer)


def _mlx_bytes() -> tuple[int, int]:
    import mlx.core as mx

    return int(mx.get_active_memory()), int(mx.get_cache_memory())


def _histogram(name: str, text: str, histogram: Histogram) -> HistogramMetricFamily:
    buckets, total = [], 0
    bounds = [*map(str, histogram.bounds_s), "+Inf"]
    for bound, count in zip(bounds, list(histogram.counts), strict=True):
        total += count
        buckets.append((bound, total))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=histogram.sum_s)

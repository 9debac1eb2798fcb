"""The streaming part of a band: pool, tier, reader and flow, the same whatever computes.

Owns their construction. Refuses to know layers and arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from .experts import ExpertMath, ExpertStreamer, Recorder, StreamedLayer
from .manifest import ExpertLayer
from .native_reader import make_reader
from .plan_types import Plan
from .policies import Policy, PolicyName, make_policy
from .pool import SlotPool
from .reader import ReadsRecords
from .record_flow import LayerRecords, RecordFlow
from .store import ModelStore
from .telemetry import Counters
from .tier import Tier


@dataclass(frozen=True, slots=True)
class Streaming:
    """A band's pool and what brings records into it. entries: its expert layers, in order."""

    entries: tuple[ExpertLayer, ...]
    pool: SlotPool
    policy: Policy
    reader: ReadsRecords
    flow: RecordFlow
    records: dict[int, LayerRecords]

    @property
    def following(self) -> dict[int, int]:
        """For each expert layer but the last, the next one."""
        return {entry.layer: after.layer for entry, after in pairwise(self.entries)}

    @property
    def counters(self) -> dict[int, Counters]:
        """By layer."""
        return {number: records.counters for number, records in self.records.items()}

    def streamer(self, maths: Mapping[int, ExpertMath], guess_width: int, recorder: Recorder | None) -> ExpertStreamer:
        """What runs the experts, with one ExpertMath a layer."""
        layers = {
            entry.layer: StreamedLayer(
                entry.layer, self.records[entry.layer], maths[entry.layer], self.following.get(entry.layer)
            )
            for entry in self.entries
        }
        return ExpertStreamer(layers, self.flow, self.policy, guess_width, recorder)


def open_streaming(store: ModelStore, plan: Plan, policy_name: PolicyName, reader_threads: int) -> Streaming:
    """The pool of the plan, and its band's record files. Raises the store's errors."""
    manifest = store.manifest
    entries = tuple(entry for entry in manifest.experts if plan.first_layer <= entry.layer <= plan.last_layer)
    keys_a_layer = max(entry.num_experts for entry in manifest.experts)
    records = {
        entry.layer: LayerRecords(
            entry, store.open_records(entry.file), entry.layer * keys_a_layer, Counters(entry.layer)
        )
        for entry in entries
    }
    pool = SlotPool(plan.slots, plan.slot_bytes)
    policy = make_policy(policy_name, manifest.num_layers, keys_a_layer)
    reader = make_reader(reader_threads)
    flow = RecordFlow(pool, Tier(plan.slots, plan.landing_slots, policy), reader, plan.landing_slots)
    return Streaming(entries, pool, policy, reader, flow, records)

"""The plan's promises: rows sum to the cap, refusal exactly when they cannot, suggestions that hold."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamoe_engine.errors import PlanDoesNotFit, UsageError
from streamoe_engine.plan import (
    HostCosts,
    PlanRequest,
    kv_bytes,
    make_plan,
    recurrent_bytes,
    resident_bytes,
    smallest_budget,
    snapshot_bytes,
)
from streamoe_engine.sizes import GIB, MIB, parse_size
from tests.manifests import qwen36_manifest

MANIFEST = qwen36_manifest()
# This platform's figures for the chat program, rounded up (docs/lab-log.md); the tokenizer is the 248k one.
HOST = HostCosts(runtime_bytes=72 * MIB, tokenizer_bytes=189 * MIB, growth_bytes=16 * MIB)
STANDARD = PlanRequest(budget_bytes=4 * GIB, ctx_tokens=4096, kv="f32")

requests = st.builds(
    PlanRequest,
    budget_bytes=st.integers(1, 32 * GIB),
    ctx_tokens=st.integers(1, 262144),
    kv=st.sampled_from(["f32", "f16"]),
    layers=st.one_of(
        st.none(), st.tuples(st.integers(0, 39), st.integers(0, 39)).map(lambda pair: tuple(sorted(pair)))
    ),
    guess_width=st.integers(0, 16),
    chunk_tokens=st.integers(1, 64),
    sequences=st.integers(1, 8),
)


@given(requests)
@settings(max_examples=200, deadline=None)
def test_rows_sum_to_the_cap_or_the_refusal_says_what_is_short(request_: PlanRequest) -> None:
    needed = smallest_budget(MANIFEST, request_, HOST)
    try:
        plan = make_plan(MANIFEST, request_, HOST)
    except PlanDoesNotFit as error:
        assert request_.budget_bytes < needed == error.needed_bytes
        assert error.short_bytes == needed - request_.budget_bytes
        return
    assert request_.budget_bytes >= needed
    assert sum(item.num_bytes for item in plan.items) == request_.budget_bytes
    assert all(item.num_bytes >= 0 and item.why for item in plan.items)
    assert plan.landing_slots <= plan.slots <= plan.num_experts_total
    assert plan.slots * plan.slot_bytes <= plan.item_bytes("landing slots") + plan.item_bytes("hot tier")


@given(requests, st.integers(0, 4 * GIB))
@settings(max_examples=100, deadline=None)
def test_a_larger_cap_never_gives_fewer_slots(request_: PlanRequest, more: int) -> None:
    needed = smallest_budget(MANIFEST, request_, HOST)
    small = make_plan(MANIFEST, replace(request_, budget_bytes=needed), HOST)
    large = make_plan(MANIFEST, replace(request_, budget_bytes=needed + more), HOST)
    assert small.slots == small.landing_slots
    assert large.slots >= small.slots


@given(requests)
@settings(max_examples=100, deadline=None)
def test_every_suggestion_has_been_planned(request_: PlanRequest) -> None:
    try:
        make_plan(MANIFEST, request_, HOST)
    except PlanDoesNotFit as error:
        ways = error.next_step.removeprefix("try ").split(", or ")
        assert ways[0].startswith("--budget ")
        for way in ways:
            make_plan(MANIFEST, applied(request_, way), HOST)


def applied(request_: PlanRequest, way: str) -> PlanRequest:
    """The request with a suggested way's flags."""
    flags = re.sub(r" \(frees .*\)", "", way).split()
    names = {
        "--budget": "budget_bytes",
        "--ctx": "ctx_tokens",
        "--kv": "kv",
        "--chunk": "chunk_tokens",
        "--guess-width": "guess_width",
        "--sequences": "sequences",
    }
    for flag, value in zip(flags[::2], flags[1::2], strict=True):
        typed = parse_size(value) if flag == "--budget" else value if flag == "--kv" else int(value)
        request_ = replace(request_, **{names[flag]: typed})
    return request_


def test_the_seeds_formulas() -> None:
    """seeds.md part 4: R1 (record), R4 (KV per token), R2 (resident, state) for Qwen3.6-35B-A3B."""
    record = MANIFEST.experts[0].record
    assert record.stride_bytes == record.payload_bytes == 3 * 2048 * 512 * 45 // 80 == 1_769_472
    assert [field.offset for field in record.fields] == [
        0,
        524288,
        557056,
        589824,
        1114112,
        1146880,
        1179648,
        1703936,
        1736704,
    ]
    one_token = replace(STANDARD, ctx_tokens=1)
    assert kv_bytes(MANIFEST, one_token, 0, 39) == 40_960
    assert kv_bytes(MANIFEST, replace(one_token, kv="f16"), 0, 39) == 20_480
    assert recurrent_bytes(MANIFEST, 0, 39) == 30 * (32 * 128 * 128 + 3 * 8192) * 4
    embedding_and_head = 2 * 248320 * 1152
    assert resident_bytes(MANIFEST, STANDARD, 0, 39) + embedding_and_head // 2 == pytest.approx(1.294 * GIB, rel=2e-3)
    assert sum(entry.num_experts * entry.record.stride_bytes for entry in MANIFEST.experts) == 16.875 * GIB


def test_four_gib_hold_1400_slots() -> None:
    """The seed had 637 of its own and 256 borrowed ones."""
    plan = make_plan(MANIFEST, STANDARD, HOST)
    assert plan.slots >= 1400
    assert plan.num_experts_total == 10_240


def test_bands_share_the_rows() -> None:
    whole = make_plan(MANIFEST, STANDARD, HOST)
    parts = [make_plan(MANIFEST, replace(STANDARD, layers=layers), HOST) for layers in ((0, 19), (20, 39))]
    for name in ("resident weights", "KV cache", "recurrent state"):
        assert sum(part.item_bytes(name) for part in parts) == whole.item_bytes(name)
    assert all(part.slots > whole.slots for part in parts)


def test_each_sequence_has_its_rows() -> None:
    one, four = (make_plan(MANIFEST, replace(STANDARD, sequences=count, backend="kernels"), HOST) for count in (1, 4))
    for name in ("KV cache", "recurrent state"):
        assert four.item_bytes(name) == 4 * one.item_bytes(name)
    assert four.item_bytes("scratch") - one.item_bytes("scratch") == 3 * 4 * 4 * MANIFEST.vocab_size
    assert sum(item.num_bytes for item in four.items) == four.budget_bytes
    assert (one.sequences, four.sequences) == (1, 4)
    assert four.slots < one.slots
    with pytest.raises(UsageError, match="0 sequences"):
        make_plan(MANIFEST, replace(STANDARD, sequences=0), HOST)


def test_a_snapshots_size_by_position() -> None:
    """40 KiB a token and 62 MiB whatever the length, in float32; by bands the parts add up."""
    at = [snapshot_bytes(MANIFEST, STANDARD, position) for position in (0, 1, 4096)]
    assert at == [0, 40_960 + recurrent_bytes(MANIFEST, 0, 39), 4096 * 40_960 + recurrent_bytes(MANIFEST, 0, 39)]
    parts = (replace(STANDARD, layers=layers) for layers in ((0, 19), (20, 39)))
    assert sum(snapshot_bytes(MANIFEST, part, 4096) for part in parts) == at[2]


def test_extra_buffers_are_rows() -> None:
    plan = make_plan(MANIFEST, replace(STANDARD, extra_bytes=(("snapshot", 64 * MIB), ("network", 8 * MIB))), HOST)
    assert (plan.item_bytes("snapshot"), plan.item_bytes("network")) == (64 * MIB, 8 * MIB)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": (0, 40)}, "layers 0-40 are not in this model, which has 0-39"),
        ({"layers": (7, 3)}, "layers 7-3"),
        ({"ctx_tokens": 300_000}, "over the model's 262144"),
        ({"chunk_tokens": 0}, "at least 1 token"),
    ],
)
def test_requests_that_cannot_be_meant(change: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_plan(MANIFEST, replace(STANDARD, **change), HOST)

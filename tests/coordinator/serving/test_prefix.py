"""Prompts that begin as an earlier one run only what is new, and answer the same."""

from __future__ import annotations

import random

import pytest

from streamoe_coordinator.serving.prefix import PrefixStore
from streamoe_coordinator.text import Text
from tests.coordinator.serving.fake_sequences import (
    SNAPSHOT_BYTES_A_TOKEN,
    Client,
    FakeSequences,
    expected_tokens,
    request_of,
    serving,
)


@pytest.fixture
def band(text: Text) -> FakeSequences:
    (end_id,) = text.tokenizer.eos_ids
    return FakeSequences(end_id, num_sequences=2)


def words(seed: int, length: int) -> list[int]:
    return [random.Random(f"{seed}-{at}").randrange(97, 122) for at in range(length)]


def test_the_next_turn_continues_the_state_of_the_last(band: FakeSequences, text: Text) -> None:
    with serving(band, text.tokenizer) as scheduler:
        first = Client(scheduler, request_of(words(1, 30))).finish()
        conversation = words(1, 30) + list(first.ended.token_ids) + words(2, 10)
        second = Client(scheduler, request_of(conversation)).finish()
        # the answer's last token was chosen but not run
        assert second.ended.tokens.cached_tokens in (len(conversation) - 10, len(conversation) - 11)
        assert second.ended.tokens.cached_tokens == second.cached_tokens
        assert list(second.ended.token_ids) == expected_tokens(conversation, band.end_id, 20)


def test_sixteen_requests_with_one_system_prompt_read_it_once(text: Text) -> None:
    (end_id,) = text.tokenizer.eos_ids
    band = FakeSequences(end_id, num_sequences=4, ctx_tokens=1200, chunk_tokens=64)
    system = words(0, 1000)
    with serving(band, text.tokenizer, checkpoint_bytes=1050 * SNAPSHOT_BYTES_A_TOKEN) as scheduler:
        prompts = [system + words(n, 20 + n) for n in range(1, 17)]
        clients = [Client(scheduler, request_of(prompt, [1000, len(prompt) - 3])) for prompt in prompts]
        for prompt, client in zip(prompts, clients, strict=True):
            assert list(client.finish().ended.token_ids) == expected_tokens(prompt, end_id, 20)
        cached = sorted(client.ended.tokens.cached_tokens for client in clients)
    assert cached == [0] + [1000] * 15
    assert band.num_prefilled == sum(map(len, prompts)) - 15 * 1000


def test_a_message_asked_again_continues_a_checkpoint(band: FakeSequences, text: Text) -> None:
    prompt = words(1, 200)
    with serving(band, text.tokenizer, checkpoint_bytes=10_000) as scheduler:
        first = Client(scheduler, request_of(prompt, [195])).finish()
        again = Client(scheduler, request_of(prompt, [195])).finish()
        assert (first.cached_tokens, again.cached_tokens) == (0, 195)
        assert again.ended.token_ids == first.ended.token_ids
        edited = [*prompt[:100], 70, *prompt[101:]]
        assert Client(scheduler, request_of(edited, [195])).finish().cached_tokens == 0, "a state cannot rewind"


def test_without_a_budget_nothing_is_copied(band: FakeSequences, text: Text) -> None:
    with serving(band, text.tokenizer) as scheduler:
        for n in range(5):
            Client(scheduler, request_of(words(n, 200), [100, 190])).finish()
        assert scheduler.checkpoints == (0, 0)
    assert band.num_snapshot_bytes == 0


def test_copies_keep_to_their_budget_and_the_longest_unused_go(band: FakeSequences) -> None:
    store = PrefixStore(band, 100 * SNAPSHOT_BYTES_A_TOKEN)
    claim = store.claim(words(0, 5))
    for n in range(4):
        store.checkpoint(words(n, 30), claim.state)
    assert (store.num_checkpoints, store.checkpoint_bytes) == (3, 90 * SNAPSHOT_BYTES_A_TOKEN)
    assert [store.longest([*words(n, 30), 1]) for n in range(4)] == [0, 30, 30, 30]
    store.checkpoint(words(1, 30), claim.state)  # used again
    store.checkpoint(words(5, 40), claim.state)
    assert [store.longest([*words(n, 30), 1]) for n in range(4)] == [0, 30, 0, 30]
    store.checkpoint(words(6, 101), claim.state)  # more than all of the budget: not kept, and nothing goes for it
    assert store.num_checkpoints == 3
    store.drop(claim.state)
    store.clear()
    assert store.num_checkpoints == 0 and band.held == []


def test_a_parked_state_that_must_go_leaves_a_copy(band: FakeSequences) -> None:
    store = PrefixStore(band, 1000)
    for n in range(3):
        claim = store.claim(words(n, 8))
        claim.state.extend(words(n, 8))
        store.park(words(n, 8), claim.state)
    assert len(band.held) == 2
    claim = store.claim([*words(0, 8), 1])
    assert (claim.position, list(claim.state)) == (8, words(0, 8))


def test_the_copy_a_prompt_needs_is_not_given_up_for_the_state_that_makes_room(text: Text) -> None:
    (end_id,) = text.tokenizer.eos_ids
    band = FakeSequences(end_id, num_sequences=1)
    store = PrefixStore(band, 10 * SNAPSHOT_BYTES_A_TOKEN)
    claim = store.claim(words(0, 20))
    claim.state.extend(words(0, 8))
    store.checkpoint(words(0, 8), claim.state)
    claim.state.extend(words(0, 9)[8:])
    store.park(words(0, 9), claim.state)
    claim = store.claim([*words(0, 8), 1])
    assert (claim.position, list(claim.state)) == (8, words(0, 8))


def test_a_parked_state_is_used_once(band: FakeSequences) -> None:
    store = PrefixStore(band, 0)
    claim = store.claim([1, 2, 3])
    claim.state.extend([1, 2])
    store.park([1, 2], claim.state)
    assert [store.claim([1, 2, 9]).position for _ in range(2)] == [2, 0]

"""Many requests at one band: answers as if alone, fair turns, places freed, limits kept."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamoe_coordinator.generation import Want
from streamoe_coordinator.sampling import SamplingParams
from streamoe_coordinator.serving.errors import Draining, EngineStopped, NotReady, QueueFull
from streamoe_coordinator.serving.scheduler import Scheduler, SchedulerOptions
from streamoe_coordinator.serving.stream import ContentDelta, Failed, Progress
from streamoe_coordinator.text import Text
from streamoe_engine.errors import ContextFull, NonFiniteLogits, PlanDoesNotFit, ReadFailed
from tests.coordinator.serving.fake_sequences import Client, FakeSequences, expected_tokens, request_of, serving
from tests.waiting import eventually


@pytest.fixture
def band(text: Text) -> FakeSequences:
    (end_id,) = text.tokenizer.eos_ids
    return FakeSequences(end_id)


def prompt_of(seed: int, length: int) -> list[int]:
    return [random.Random(f"{seed}-{at}").randrange(97, 122) for at in range(length)]


def hold(band: FakeSequences) -> threading.Event:
    """The band waits before its next step until the event is set."""
    gate = threading.Event()
    band.before_run = lambda _: gate.wait(10) and None
    return gate


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_answers_are_as_if_alone_whatever_else_happens(text: Text, data: st.DataObject) -> None:
    (end_id,) = text.tokenizer.eos_ids
    sequences = data.draw(st.integers(1, 4))
    budget = data.draw(st.sampled_from([0, 300, 10_000]))
    band = FakeSequences(end_id, sequences, chunk_tokens=data.draw(st.integers(1, 30)))
    with serving(band, text.tokenizer, checkpoint_bytes=budget, checkpoint_tokens=4) as scheduler:
        asked: list[tuple[list[int], Client, bool]] = []
        for number in range(data.draw(st.integers(1, 12))):
            base = prompt_of(data.draw(st.integers(0, 2)), 40)
            prompt = base[: data.draw(st.integers(1, 40))] + prompt_of(number, data.draw(st.integers(0, 20)))
            boundaries = sorted(data.draw(st.sets(st.integers(1, len(prompt)), max_size=3)) - {len(prompt)})
            client = Client(scheduler, request_of(prompt, boundaries, client=str(number % 3)))
            is_left = data.draw(st.booleans())
            if is_left:
                client.ticket.cancel()
            asked.append((prompt, client, is_left))
            if data.draw(st.booleans()):
                client.finish()
        for prompt, client, is_left in asked:
            ended = client.finish().ended
            expected = expected_tokens(prompt, end_id, 20)
            if is_left:
                assert list(ended.token_ids) == expected[: len(ended.token_ids)]
            else:
                assert list(ended.token_ids) == expected
                assert client.text == text.tokenizer.decode(expected)
                assert ended.tokens.prompt_tokens == len(prompt)
        assert scheduler.load.is_idle
        assert scheduler.checkpoints[1] <= budget
    assert band.held == [], "states are given back at the end"


def test_several_decode_in_one_pass(band: FakeSequences, text: Text) -> None:
    band.never_ends = True
    gate = hold(band)
    with serving(band, text.tokenizer) as scheduler:
        clients = [Client(scheduler, request_of(prompt_of(n, 3), max_tokens=30)) for n in range(3)]
        gate.set()
        assert all(len(client.finish().ended.token_ids) == 30 for client in clients)
    assert max(band.together) == 3
    assert sum(band.together) > 40, "most tokens came of a common pass"


def test_a_client_that_leaves_frees_its_place_within_a_token(band: FakeSequences, text: Text) -> None:
    band.never_ends = True
    band.before_run = lambda _: time.sleep(0.01)  # so that 399 tokens outlast the look at the first
    with serving(band, text.tokenizer) as scheduler:
        client = Client(scheduler, request_of([5], max_tokens=399))
        client.wait_for(ContentDelta)
        gate = hold(band)
        client.ticket.cancel()
        num_calls = len(band.calls)
        gate.set()
        ended = client.finish().ended
        assert ended.reason == "cancelled"
        assert len(band.calls) <= num_calls + 1
        assert scheduler.load.is_idle
        assert scheduler.meter.num_cancelled == 1


def test_a_client_that_leaves_stops_a_chunk_between_layers(band: FakeSequences, text: Text) -> None:
    with serving(band, text.tokenizer) as scheduler:
        gate = hold(band)
        client = Client(scheduler, request_of(prompt_of(1, 70)))
        client.wait_for(Progress)
        client.ticket.cancel()
        gate.set()
        assert client.finish().ended.reason == "cancelled"
        assert sum(band.calls) <= 7, "at most the chunk that ran"


def test_who_waits_and_leaves_is_gone(band: FakeSequences, text: Text) -> None:
    gate = hold(band)
    with serving(band, text.tokenizer) as scheduler:
        running = [Client(scheduler, request_of(prompt_of(n, 5))) for n in range(3)]
        waiting = Client(scheduler, request_of([3]))
        waiting.ticket.cancel()
        waiting.ticket.cancel()
        gate.set()
        assert waiting.finish().ended.reason == "cancelled"
        assert scheduler.meter.num_cancelled == 1, "also who never had a place"
        assert [client.finish().ended.tokens.prompt_tokens for client in running] == [5, 5, 5]


def test_who_has_a_place_and_leaves_before_its_turn_is_counted(band: FakeSequences, text: Text) -> None:
    submitted = threading.Event()
    clients: list[Client] = []

    def leave(_: FakeSequences) -> None:
        submitted.wait(10)
        if len(band.calls) == 1:  # the first prompt's second chunk: the others have places, and wait for their turns
            clients[2].ticket.cancel()

    band.before_run = leave
    with serving(band, text.tokenizer) as scheduler:
        clients += [Client(scheduler, request_of(prompt_of(n, 30))) for n in range(3)]
        submitted.set()
        assert [client.finish().ended.reason == "cancelled" for client in clients] == [False, False, True]
        assert not any(isinstance(event, Progress) for event in clients[2].events), "it had begun"
        assert (scheduler.meter.num_requests, scheduler.meter.num_cancelled) == (2, 1)


def test_who_sees_nothing_run_sees_every_end_counted(band: FakeSequences, text: Text) -> None:
    band.never_ends = True
    num_cancelled = 0
    with serving(band, text.tokenizer) as scheduler:
        for number in range(100):
            client = Client(scheduler, request_of([number % 50 + 1], max_tokens=399))
            if number % 3:
                client.wait_for(Progress)
            client.ticket.cancel()
            while not scheduler.load.is_idle:
                pass
            counted = scheduler.meter.num_cancelled
            num_cancelled += client.finish().ended.reason == "cancelled"
            assert counted == num_cancelled


def test_errors_count_also_who_never_began(band: FakeSequences, text: Text) -> None:
    gate = hold(band)
    with serving(band, text.tokenizer) as scheduler:
        clients = [Client(scheduler, request_of(prompt_of(n, 5))) for n in range(5)]
        closing = threading.Thread(target=scheduler.close)
        closing.start()
        eventually(lambda: scheduler.status == "draining")
        gate.set()
        closing.join(10)
        num_failed = sum(isinstance(client.finish().events[-1], Failed) for client in clients)
        assert scheduler.meter.num_failed == num_failed >= 2, "at least the two in line"


def test_clients_take_turns(text: Text) -> None:
    (end_id,) = text.tokenizer.eos_ids
    band = FakeSequences(end_id, num_sequences=1)
    order: list[str] = []
    gate = hold(band)
    with serving(band, text.tokenizer) as scheduler:
        first = Client(scheduler, request_of([9], name="first", client="x"))
        first.wait_for(Progress)
        greedy = [Client(scheduler, request_of([n + 1], name=f"greedy{n}", client="greedy")) for n in range(4)]
        modest = Client(scheduler, request_of([8], name="modest", client="modest"))
        for client in (*greedy, modest):
            deliver, name = client.ticket.deliver, client.ticket.request.id
            client.ticket.deliver = lambda event, deliver=deliver, name=name: (order.append(name), deliver(event))[1]
        gate.set()
        for client in (first, *greedy, modest):
            client.finish()
    assert list(dict.fromkeys(order)) == ["greedy0", "modest", "greedy1", "greedy2", "greedy3"]


def test_a_long_prompt_does_not_hold_up_a_short_one(band: FakeSequences, text: Text) -> None:
    gate = hold(band)
    with serving(band, text.tokenizer) as scheduler:
        long = Client(scheduler, request_of(prompt_of(1, 350)))
        short = Client(scheduler, request_of(prompt_of(2, 5), max_tokens=3))
        gate.set()
        short.finish()
        assert any(event.done_tokens < 350 for event in long.events if isinstance(event, Progress)) or not long.events
        assert long.finish().ended.tokens.prompt_tokens == 350


def test_the_line_has_an_end(band: FakeSequences, text: Text) -> None:
    gate = hold(band)
    with serving(band, text.tokenizer, max_waiting=2) as scheduler:
        taken = [Client(scheduler, request_of([n + 1])) for n in range(5)]
        with pytest.raises(QueueFull) as caught:
            scheduler.submit(request_of([9]), lambda _: None)
        assert 1 <= caught.value.retry_after_s <= 60
        gate.set()
        for client in taken:
            client.finish()
        Client(scheduler, request_of([9])).finish()


def test_too_long_a_prompt_is_refused_before_any_step(band: FakeSequences, text: Text) -> None:
    with serving(band, text.tokenizer) as scheduler:
        with pytest.raises(ContextFull, match="401 tokens do not fit the planned context of 400"):
            scheduler.submit(request_of(prompt_of(1, 400)), lambda _: None)
        assert band.calls == []
        assert len(Client(scheduler, request_of(prompt_of(1, 399))).finish().ended.token_ids) <= 1


def test_an_error_ends_the_answers_of_its_step_alone(band: FakeSequences, text: Text, tmp_path: Any) -> None:
    with serving(band, text.tokenizer) as scheduler:
        band.before_run = lambda _: (_ for _ in ()).throw(ReadFailed(tmp_path / "a" / "b", 0, 8, "I/O error"))
        assert isinstance(Client(scheduler, request_of([4])).finish().failed.error, ReadFailed)
        band.before_run = lambda _: None
        assert Client(scheduler, request_of([4])).finish().ended.reason in ("stop", "length")
        assert scheduler.meter.num_failed == 1


def test_logits_that_are_no_numbers_fail_one_answer(text: Text) -> None:
    class Broken(FakeSequences):
        """NaN for the sequence that begins with token 66."""

        def run(self, state: Any, inputs: np.ndarray, want: Want, **more: Any) -> np.ndarray | None:
            logits = super().run(state, inputs, want, **more)
            return logits if logits is None or state[0] != 66 else logits * np.float32("nan")

    (end_id,) = text.tokenizer.eos_ids
    band = Broken(end_id)
    gate = hold(band)
    with serving(band, text.tokenizer) as scheduler:
        good, bad = Client(scheduler, request_of([65])), Client(scheduler, request_of([66]))
        gate.set()
        assert isinstance(bad.finish().failed.error, NonFiniteLogits)
        assert list(good.finish().ended.token_ids) == expected_tokens([65], end_id, 20)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_of_ours_is_told_to_everybody_and_to_the_health(band: FakeSequences, text: Text) -> None:
    gate = hold(band)
    with serving(band, text.tokenizer) as scheduler:
        clients = [Client(scheduler, request_of([n + 1])) for n in range(5)]
        band.before_run = lambda _: 1 // 0
        gate.set()
        assert all(isinstance(client.finish().failed.error, EngineStopped) for client in clients)
        assert scheduler.status == "failed"
        with pytest.raises(EngineStopped, match="ZeroDivisionError"):
            scheduler.submit(request_of([1]), lambda _: None)


def test_opening_is_waited_for_and_its_error_raised(text: Text) -> None:
    gate = threading.Event()

    @contextmanager
    def refused() -> Iterator[Any]:
        gate.wait(10)
        raise PlanDoesNotFit("too small", "", needed_bytes=2, cap_bytes=1)
        yield

    scheduler = Scheduler(refused, text.tokenizer, SchedulerOptions())
    scheduler.start()
    assert not scheduler.wait_until_open(0.01)
    with pytest.raises(NotReady):
        scheduler.submit(request_of([1]), lambda _: None)
    gate.set()
    with pytest.raises(PlanDoesNotFit):
        scheduler.wait_until_open(10)
    assert scheduler.status == "failed"
    scheduler.close()


def test_closing_lets_answers_end_within_the_grace(band: FakeSequences, text: Text) -> None:
    gate = hold(band)
    with serving(band, text.tokenizer) as scheduler:
        clients = [Client(scheduler, request_of([n + 1])) for n in range(5)]
        closing = threading.Thread(target=scheduler.close, args=(10,))
        closing.start()
        eventually(lambda: scheduler.status == "draining")
        with pytest.raises(Draining):
            scheduler.submit(request_of([1]), lambda _: None)
        gate.set()
        closing.join(10)
        assert {client.finish().ended.reason for client in clients} <= {"stop", "length"}


def test_closing_without_grace_ends_answers_with_an_error(band: FakeSequences, text: Text) -> None:
    band.never_ends = True
    with serving(band, text.tokenizer) as scheduler:
        clients = [Client(scheduler, request_of([n + 1], max_tokens=390)) for n in range(5)]
        clients[0].wait_for(ContentDelta)
        scheduler.close()
        assert all(isinstance(client.finish().failed.error, Draining) for client in clients)


def test_seeded_answers_do_not_depend_on_company(text: Text) -> None:
    (end_id,) = text.tokenizer.eos_ids

    class Flat(FakeSequences):
        """All tokens equally likely: what comes is the random numbers alone."""

        def run(self, state: Any, inputs: np.ndarray, want: Want, **more: Any) -> np.ndarray | None:
            logits = super().run(state, inputs, want, **more)
            return None if logits is None else np.zeros_like(logits)

    def answers(seeds: list[int]) -> list[tuple[int, ...]]:
        band = Flat(end_id, num_sequences=4)
        params = [SamplingParams(temperature=1.0, seed=seed, max_tokens=12) for seed in seeds]
        with serving(band, text.tokenizer) as scheduler:
            clients = [Client(scheduler, request_of([1], params=given)) for given in params]
            return [client.finish().ended.token_ids for client in clients]

    together = answers([1, 2, 3, 1])
    assert together[0] == together[3] != together[1]
    assert together[:3] == [answers([seed])[0] for seed in (1, 2, 3)]

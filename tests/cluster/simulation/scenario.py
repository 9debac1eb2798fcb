"""One seeded run: a cluster, its sessions, what goes wrong, and what must be true of it afterwards.

Each session either makes the oracle's tokens or ends in a typed error in time; and once everything is whole again the
same cluster answers as it should, with nothing left behind.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
from greenlet import greenlet

from streamoe_coordinator.cluster.chain import Chain
from streamoe_coordinator.cluster.notices import BandRecovered
from streamoe_engine.errors import StreamoeError
from streamoe_node.errors import BandLost

from .cluster import ClockAhead, Cluster
from .nodes import ORPHAN_TTL_S
from .toy_band import VOCAB, answer_of
from .world import World

# From the call that met the trouble to its error: 15 s of silence, the ladder's 120 s, and its last attempt.
MOST_ERROR_S, MOST_SLOW_ERROR_S = 150.0, 450.0


@dataclass(slots=True)
class Conversation:
    """One session: what it was to make, and what came of it."""

    prompt: tuple[int, ...]
    num_tokens: int
    cuts: list[int]
    made: list[int] = field(default_factory=list)
    error: StreamoeError | None = None
    error_s: float = 0.0
    is_done: bool = False


@dataclass(slots=True)
class Outcome:
    """What a seed came to. fault: what is wrong, "" for nothing."""

    seed: int
    fault: str
    lines: list[str]
    num_conversations: int = 0
    num_errors: int = 0
    recoveries: list[BandRecovered] = field(default_factory=list)


def draw_conversation(chance: random.Random) -> Conversation:
    """A prompt of a few tokens, cut at random, and how many to make of it."""
    prompt = tuple(random.Random(chance.randrange(200)).choices(range(VOCAB), k=chance.choice((1, 3, 6, 10))))
    cuts: list[int] = []
    while sum(cuts) < len(prompt):
        cuts.append(min(chance.choice((1, 2, 5, 10)), len(prompt) - sum(cuts)))
    return Conversation(prompt, chance.choice((1, 3, 7)), cuts)


def converse(chain: Chain, talk: Conversation, clock: ClockAhead, world: World) -> None:
    """Run a conversation to its end."""
    began_s = world.now_s
    try:
        state = chain.new_state()
        logits, at = None, 0
        for count in talk.cuts:
            began_s = world.now_s
            tokens = np.array(talk.prompt[at : at + count], np.int32)
            at += count
            logits = chain.run(state, tokens, "last_logits" if at == len(talk.prompt) else "nothing")
        while True:
            assert logits is not None
            talk.made.append(int(logits.argmax()))
            if len(talk.made) == talk.num_tokens:
                break
            began_s = world.now_s
            logits = chain.run(state, np.array(talk.made[-1:], np.int32), "last_logits")
        state.release()
    except StreamoeError as error:
        talk.error, talk.error_s = error, world.now_s - began_s
        world.tell(f"typed error: {error}")
    talk.is_done = True


def verdict_of(talk: Conversation, cluster: Cluster) -> str:
    """What is wrong with a conversation, "" for nothing."""
    oracle = answer_of(talk.prompt, talk.num_tokens)
    if tuple(talk.made) != oracle[: len(talk.made)]:
        return f"wrong tokens {talk.made} instead of {oracle}"
    if not talk.is_done:
        return f"it hangs after {len(talk.made)} tokens"
    if talk.error is None:
        return "" if tuple(talk.made) == oracle else f"only {len(talk.made)} of {len(oracle)} tokens"
    return _error_fault(talk, cluster)


def _error_fault(talk: Conversation, cluster: Cluster) -> str:
    error = talk.error
    if not isinstance(error, BandLost) or error.exit_code != 4:
        return f"not the error to be expected: {error!r}"
    if not any(f"layers {first}-{last} " in error.message for first, last in cluster.split):
        return f"no band is named: {error}"
    # Time in which a slow node gives signs of work does not count.
    if talk.error_s > (MOST_SLOW_ERROR_S if cluster.has_slow_node else MOST_ERROR_S):
        return f"the error took {talk.error_s:.1f} s"
    return f"nothing excuses the error: {error}" if cluster.is_mild else ""


def run_seed(seed: int, *, is_told: bool = False) -> Outcome:
    """Run one seed; an Outcome whose fault is "" has kept every promise."""
    cluster = Cluster(seed, is_told=is_told)
    chance, world = cluster.chance, cluster.world
    clock = ClockAhead(world)
    chain = cluster.chain(clock, "first")
    talks = [draw_conversation(chance) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
    tasks = [world.spawn(lambda talk=talk: converse(chain, talk, clock, world)) for talk in talks]
    cluster.spoil()
    if chance.random() < 0.15:
        seconds = chance.choice((3.0, 30.0, 500.0))
        cluster.is_mild = cluster.is_mild and seconds < 10.0
        world.at(chance.uniform(0.0, 1.0), _jump, clock, seconds)
    if chance.random() < 0.15:
        world.at(chance.uniform(0.0, 1.0), lambda: _crash_coordinator(cluster, tasks, talks, clock))
    world.run(lambda: talks[0].is_done and all(talk.is_done for talk in talks), 4000.0)
    outcome = Outcome(seed, "", world.lines, len(talks), sum(talk.error is not None for talk in talks))
    faults = [verdict_of(talk, cluster) for talk in talks]
    chain.close()
    outcome.fault = next((fault for fault in faults if fault), "") or _aftermath(cluster, clock)
    outcome.recoveries = cluster.recoveries
    return outcome


def _aftermath(cluster: Cluster, clock: ClockAhead) -> str:
    """All is healed: a new conversation must succeed, and afterwards nothing may be left."""
    world = cluster.world
    cluster.heal()
    chain, talk = cluster.chain(clock, "after"), Conversation((5, 8, 13), 3, [3])
    world.spawn(lambda: converse(chain, talk, clock, world))
    world.run(lambda: talk.is_done, 1000.0)
    cluster.is_mild = True
    fault = verdict_of(talk, cluster)
    chain.close()
    if chain.history_bytes_used:
        return f"{chain.history_bytes_used} B of history are still taken"
    world.run(lambda: False, 1.0)
    if left := [node.name for node in cluster.nodes.values() if node.has_session("after")]:
        return f"a closed session is still on {left}"
    world.run(lambda: not cluster.leaks(), 3 * ORPHAN_TTL_S)
    return f"after healing: {fault}" if fault else cluster.leaks()


def _jump(clock: ClockAhead, seconds: float) -> None:
    clock.ahead_s += seconds


def _crash_coordinator(cluster: Cluster, tasks: list[greenlet], talks: list[Conversation], clock: ClockAhead) -> None:
    """The coordinator dies without a word; another with a higher epoch takes the same sessions from their tokens."""
    world = cluster.world
    world.tell("the coordinator crashed")
    is_silent = cluster.chance.random() < 0.3
    for wire in cluster.dialer.wires:
        wire.cut("the coordinator died", is_silent=True, node_learns_s=15.0 if is_silent else 0.001)
    for task in tasks:
        world.kill(task)
    chain = cluster.chain(clock, "first")
    for talk in talks:
        if not talk.is_done:
            talk.made.clear()
            world.spawn(lambda talk=talk: converse(chain, talk, clock, world))

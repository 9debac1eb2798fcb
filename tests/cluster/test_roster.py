"""Who is there, in virtual time: ghosts, restarts, clones, flapping places."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamoe_coordinator.cluster.places import Place
from streamoe_coordinator.cluster.roster import FORGET_S, GHOST_S, Roster, SeenNode, Sight
from streamoe_proto.messages import NodeFacts
from tests.cluster.facts import node

A, B, C = Place("10.0.0.1", 1), Place("10.0.0.2", 1), Place("fe80::1%en0", 1)


class World:
    """What answers at each place, and a clock; asks whatever is due, each question taking no time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.roster = Roster(seed=1)
        self.behind: dict[Place, NodeFacts] = {}
        self.rtt_s: dict[Place, float] = {}
        self.num_asked: dict[Place, int] = {}

    def run(self, seconds: float, step_s: float = 0.1) -> None:
        for _ in range(round(seconds / step_s)):
            for place in self.roster.take_due(self.now_s):
                self.num_asked[place] = self.num_asked.get(place, 0) + 1
                facts = self.behind.get(place)
                if facts is None:
                    self.roster.failed(place, "connection refused", self.now_s)
                else:
                    self.roster.answered(place, Sight(facts, self.rtt_s.get(place, 0.001)), self.now_s)
            self.now_s += step_s

    @property
    def nodes(self) -> tuple[SeenNode, ...]:
        return self.roster.nodes(self.now_s)

    @property
    def ids(self) -> list[str]:
        return [seen.facts.node_id for seen in self.nodes]


def world(*places: Place, is_static: bool = True) -> World:
    made = World()
    made.roster.sight(places, 0.0, is_static=is_static)
    return made


def test_one_node_at_three_places_is_one_and_the_quickest_comes_first() -> None:
    w = world(A, B, C)
    w.behind = dict.fromkeys((A, B, C), node("a", 0, 15))
    w.rtt_s = {A: 0.005, B: 0.02, C: 0.0004}
    w.run(3)
    (seen,) = w.nodes
    assert seen.places == (C, A, B) and seen.rtt_s == 0.0004
    del w.behind[C]  # unplugged
    w.run(4)
    assert w.nodes[0].places[0] == A


def test_a_dead_node_is_gone_in_time_and_comes_back() -> None:
    w = world(A, B)
    w.behind = {A: node("a", 0, 7), B: node("b", 8, 15)}
    w.run(20)
    assert w.ids == ["a", "b"]
    del w.behind[B]
    w.run(GHOST_S + 2)
    assert w.ids == ["a"]
    assert [silent.place for silent in w.roster.silent(w.now_s)] == [B]
    assert w.roster.silent(w.now_s)[0].why == "connection refused"
    w.run(1000)
    w.behind[B] = node("b", 8, 15, boot_id="again")
    w.run(5)
    assert w.ids == ["a", "b"] and w.roster.silent(w.now_s) == ()


def test_restarts_make_no_ghosts_and_no_twins() -> None:
    """The same node at two addresses, started again five times: never two of it."""
    w = world(A, B)
    for boot in range(5):
        w.behind = dict.fromkeys((A, B), node("a", 0, 15, boot_id=f"boot-{boot}"))
        for _ in range(60):
            w.run(0.1)
            assert len(w.nodes) <= 1
        assert w.nodes[0].facts.boot_id == f"boot-{boot}" and w.nodes[0].places == (A, B)
        w.behind = {}
        w.run(0.5)


def test_two_machines_with_one_id_are_both_shown() -> None:
    w = world(A, B)
    w.behind = {A: node("a", 0, 15), B: node("a", 0, 15, boot_id="clone")}
    w.run(6)
    assert w.ids == ["a", "a"]
    assert {seen.facts.boot_id for seen in w.nodes} == {"boot-a", "clone"}
    del w.behind[B]
    w.run(GHOST_S + 2)
    assert w.ids == ["a"]


def test_a_farewell_removes_nothing_but_is_looked_into() -> None:
    w = world(A)
    w.behind = {A: node("a", 0, 15)}
    w.run(10)
    before = w.num_asked[A]
    w.roster.hurry([A], w.now_s)
    w.run(0.1)
    assert w.num_asked[A] == before + 1 and w.ids == ["a"]


def test_places_that_only_mdns_knew_are_forgotten_and_found_again() -> None:
    w = world(A, is_static=False)
    w.run(FORGET_S + 10)
    asked = w.num_asked[A]
    w.run(100)
    assert w.num_asked[A] == asked
    w.roster.sight([A], w.now_s)
    w.behind = {A: node("a", 0, 15)}
    w.run(1)
    assert w.ids == ["a"]
    w.run(FORGET_S + 100)  # it answers: no announcement is needed
    assert w.ids == ["a"]


def test_failures_are_asked_again_later_and_later_but_never_rarely() -> None:
    w = world(A)
    w.run(60)
    assert 60 / 4 <= w.num_asked[A] <= 60 / 2
    w.roster.sight([A], w.now_s)
    before = w.num_asked[A]
    w.run(0.7)
    assert w.num_asked[A] == before + 1


def test_no_second_question_while_one_is_open() -> None:
    roster = Roster(seed=1)
    roster.sight([A], 0.0)
    assert roster.take_due(0.0) == (A,)
    roster.sight([A], 1.0)
    roster.hurry([A], 1.0)
    assert roster.take_due(50.0) == ()
    assert not roster.is_settled
    roster.failed(A, "timeout", 50.0)
    assert roster.is_settled


@given(st.lists(st.tuples(st.sampled_from((A, B, C)), st.sampled_from(["a", "b", None])), max_size=40))
def test_exactly_the_nodes_that_answer(changes: list[tuple[Place, str | None]]) -> None:
    """Nodes come and go behind three places; after things have been quiet, the roster says what is there."""
    w = world(A, B, C)
    for number, (place, who) in enumerate(changes):
        if who is None:
            w.behind.pop(place, None)
        elif all(facts.node_id != who for other, facts in w.behind.items() if other != place):
            w.behind[place] = node(who, 0, 15, boot_id=f"{who}-{number}")
        w.run(0.3)
    w.run(GHOST_S + 5)
    assert w.ids == sorted(facts.node_id for facts in w.behind.values())

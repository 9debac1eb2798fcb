"""Toy nodes in virtual time and a chain over them, for tests of the chain and of its ladder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamoe_coordinator.cluster.chain import Chain, ChainOptions
from streamoe_coordinator.cluster.notices import BandRecovered, Notice

from .simulation.nodes import SimDialer, SimNode
from .simulation.scenario import ClockAhead
from .simulation.world import World

TWO = ((0, 5), (6, 11))
PROMPT = (3, 14, 15, 9, 26, 5, 35, 8)


class Bench:
    """Nodes, a chain over them, and a coordinator that runs as a task."""

    def __init__(self, *split: tuple[int, int], rescue: Any = None, **options: Any) -> None:
        self.world = World(is_told=True)
        self.nodes = {f"node-{a}": SimNode(self.world, f"node-{a}", (a, b), "bench") for a, b in split}
        self.dialer = SimDialer(self.world, self.nodes, lambda data: [(0.0, data)])
        self.notices: list[Notice] = []
        self.clock = ClockAhead(self.world)
        count = iter(range(100))
        self.chain = Chain(
            [self.dialer.seat(name) for name in self.nodes],
            ChainOptions(epoch=1, **options),
            clock=self.clock,
            rescue=rescue,
            notify=self.notices.append,
            new_session=lambda: f"talk-{next(count)}",
        )
        for node in self.nodes.values():
            node.step_s = 0.1

    def run(self, act: Callable[[], Any], most_s: float = 1000.0) -> Any:
        """What `act` gives or raises, as a task."""
        found: list[Any] = []
        failed: list[BaseException] = []

        def task() -> None:
            try:
                found.append(act())
            except Exception as error:  # noqa: BLE001 - raised again below, outside the task
                failed.append(error)

        self.world.spawn(task)
        self.world.run(lambda: bool(found or failed), most_s)
        if failed:
            raise failed[0]
        assert found, "it hangs"
        return found[0]

    def sent(self, word: str) -> list[str]:
        return [line for line in self.world.lines if word in line]

    def answer(self, state: Any = None, num_tokens: int = 6, before: Callable[[int], None] = lambda _: None) -> Any:
        """Greedy tokens after PROMPT; before(i) is called before token i is run."""
        chain = self.chain
        state = state or chain.new_state()
        logits = chain.run(state, np.array(PROMPT, np.int32), "last_logits")
        made: list[int] = []
        while True:
            assert logits is not None
            made.append(int(logits.argmax()))
            if len(made) == num_tokens:
                return tuple(made)
            before(len(made))
            logits = chain.run(state, np.array(made[-1:], np.int32), "last_logits")


def recovered(bench: Bench) -> list[BandRecovered]:
    return [notice for notice in bench.notices if isinstance(notice, BandRecovered)]

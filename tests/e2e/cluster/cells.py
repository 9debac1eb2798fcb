"""Two nodes that make the model, at addresses that stay, to be broken and mended: on loopback or on a network.

Owns the two nodes across restarts. Refuses to know when they are broken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.e2e.cluster import faults
from tests.e2e.cluster.faults import NUM_TOKENS, Moment, Trial
from tests.e2e.cluster.lan import Lan, Machine
from tests.e2e.cluster.machines import Asking, Cluster, chat_over, free_port
from tests.node.processes import NodeProcess

BANDS = ("0-7", "8-15")
# Small enough that a prompt takes several frames.
BUDGET = "350MiB"
FREEZE_S, CABLE_S = 30.0, 20.0


@dataclass(slots=True)
class Place:
    """Where a band's node is: what it is started with, and the machine it runs on, None: this one."""

    layers: str
    name: str
    host: str
    port: int
    machine: Machine | None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def argv(self) -> tuple[str, ...]:
        return () if self.machine is None else self.machine.argv


class Pair:
    """The two nodes, and the coordinators' machine. lan: where they are, None: on loopback."""

    def __init__(
        self, cluster: Cluster, home: Path, num_prompt: Callable[[Moment], int], lan: Lan | None = None
    ) -> None:
        self._cluster, self._home, self._num_prompt = cluster, home, num_prompt
        self._here = None if lan is None else lan.machine()
        self.places = [self._place(layers, f"n{layers}", lan) for layers in BANDS]
        self.nodes = [self._start(place) for place in self.places]
        for node in self.nodes:
            node.event("ready")

    def stand_in(self, band: int) -> NodeProcess:
        """One more node of a band, under a name of its own."""
        node = self._start(self._place(BANDS[band], f"other{BANDS[band]}", None))
        node.event("ready")
        return node

    def kill(self, band: int) -> None:
        process = self.nodes[band].process
        process.kill()
        process.wait(10)  # its port and its name are free only then

    def restart(self, band: int) -> None:
        """The node again, under its name and at its address; not waited for."""
        self.nodes[band] = self._start(self.places[band])

    def wait_ready(self, band: int) -> None:
        self.nodes[band].event("ready")

    def killed(self, moment: Moment, band: int) -> Trial:
        """kill -9, and at once started again."""
        trial = self.trial("kill", moment, band, partial(self.kill, band), lambda _: self.restart(band))
        self.wait_ready(band)
        return trial

    def frozen(self, moment: Moment, band: int) -> Trial:
        process = self.nodes[band].process

        def mend(asking: Asking) -> None:
            faults.while_open(asking, FREEZE_S)
            faults.thaw(process)

        return self.trial("freeze 30 s", moment, band, partial(faults.freeze, process), mend)

    def cut_off(self, moment: Moment, band: int) -> Trial:
        machine = self.places[band].machine
        assert machine is not None

        def mend(asking: Asking) -> None:
            faults.while_open(asking, CABLE_S)
            machine.plug_cable()

        return self.trial("cable 20 s", moment, band, machine.pull_cable, mend)

    def taken_over(self, moment: Moment, band: int, other: NodeProcess) -> Trial:
        """kill -9, while another node has the band too; which of the two serves is the coordinator's choice, so the
        other is unknown to it until the fault: it is frozen until then."""
        faults.freeze(other.process)
        strike = partial(self.kill, band)
        trial = self.trial(
            "kill, another node", moment, band, strike, lambda _: faults.thaw(other.process), more=(other.address,)
        )
        self.restart(band)
        self.wait_ready(band)
        return trial

    def opened_here(self, moment: Moment, band: int, folder: Path) -> Trial:
        """kill -9, and nobody else has the band; the coordinator has a cap of its own."""
        options = ("--budget", "450MiB", "--model", folder)
        trial = self.trial("kill, opened here", moment, band, partial(self.kill, band), lambda _: None, *options)
        self.restart(band)
        self.wait_ready(band)
        return trial

    def killed_for_good(self, moment: Moment, band: int) -> Trial:
        """kill -9, and nobody helps."""
        wait = partial(faults.while_open, seconds=faults.LONGEST_S)
        trial = self.trial("kill for good", moment, band, partial(self.kill, band), wait)
        self.restart(band)
        self.wait_ready(band)
        return trial

    def trial(
        self, fault: str, moment: Moment, band: int, strike: Callable[[], None], mend: Callable[[Asking], None],
        *options: object, more: tuple[str, ...] = (),
    ) -> Trial:  # fmt: skip
        """more: addresses beside the two nodes'. options: the coordinator's."""
        wanted = faults.tokens_before(moment, self._num_prompt(moment))
        place, here = self.places[band], () if self._here is None else self._here.argv
        plain = () if self._here is None else ("--insecure-lan",)
        addresses = [place.address for place in self.places] + list(more)
        with faults.watching(place.address, wanted, here) as reached:
            ask = partial(
                chat_over, addresses, self._home, faults.prompt_of(moment), NUM_TOKENS, *plain, *options, argv=here
            )
            return faults.disturb(fault, moment, band, ask, reached, strike, mend)

    def _place(self, layers: str, name: str, lan: Lan | None) -> Place:
        if lan is None:
            return Place(layers, name, "127.0.0.1", free_port(), None)
        machine = lan.machine()
        return Place(layers, name, machine.address, 7650, machine)

    def _start(self, place: Place) -> NodeProcess:
        where = ("--host", place.host, "--port", place.port)
        plain = () if place.machine is None else ("--insecure-lan",)
        return self._cluster.start(place.layers, place.name, "--budget", BUDGET, *where, *plain, argv=place.argv)

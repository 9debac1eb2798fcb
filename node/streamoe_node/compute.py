"""The one thread that opens the band, tests it, and runs every step.

Owns the open band and its thread: MLX's streams belong to the thread that made them. Refuses to know gRPC and signals.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from streamoe_engine.band import Band, BandOptions
from streamoe_proto.messages import NodeState

from .core import NodeCore
from .engine_band import EngineBand
from .ports import BandCounts
from .selftest import self_test

_IDLE_S = 0.5


class Compute:
    """Opens a band and computes until stopped, or until the core is drained."""

    def __init__(self, folder: Path, options: BandOptions, make_core: Callable[[EngineBand], NodeCore]) -> None:
        self._folder, self._options, self._make_core = folder, options, make_core
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._state: NodeState = "loading"
        self._band: Band | None = None
        self.canary = ""
        self.core: NodeCore | None = None
        self.error: BaseException | None = None
        self.changed = threading.Event()  # ready, ended, or failed

    def start(self) -> None:
        """Begin to open the band."""
        self._thread.start()

    def stop(self) -> None:
        """End after the running step; what is queued stays undone."""
        self._stop.set()

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended, within so long."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def state(self) -> NodeState:
        """loading, selftest, the core's state, or closed."""
        core = self.core
        return core.state() if core is not None and self._state == "ready" else self._state

    def counts(self) -> BandCounts:
        """The band's counts."""
        band = self._band
        return BandCounts(*band.sums()) if band is not None else BandCounts()

    def _run(self) -> None:
        try:
            with Band.open(self._folder, self._options) as band:
                port = EngineBand(band)
                self._state = "selftest"
                self.canary = self_test(port)
                self._band, self.core = band, self._make_core(port)
                self._state = "ready"
                self.changed.set()
                core = self.core
                while not self._stop.is_set() and not core.is_drained:
                    core.run_next(_IDLE_S)
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the main thread raises it again
            self.error = error
        finally:
            self._band, self._state = None, "closed"
            self.changed.set()

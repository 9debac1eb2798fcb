"""The canary: the same on every split it can be, and a band that gives no numbers does not serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamoe_node.engine_band import EngineBand
from streamoe_node.errors import SelfTestFailed
from streamoe_node.selftest import self_test
from tests.node.toy import ToyBand
from tests.running import open_band


def test_same_digest_each_time_and_no_state_left() -> None:
    one, other = ToyBand(), ToyBand()
    assert self_test(one) == self_test(other) and not one.held


def test_band_that_differs_or_is_not_finite_fails() -> None:
    class Drifting(ToyBand):
        calls = 0

        def run(self, state: Any, inputs: Any, want: Any, **more: Any) -> Any:
            self.calls += 1
            return super().run(state, inputs, want, **more) + self.calls

    class Broken(ToyBand):
        def run(self, state: Any, inputs: Any, want: Any, **more: Any) -> Any:
            return super().run(state, inputs, want, **more) * np.nan

    with pytest.raises(SelfTestFailed, match="other numbers"):
        self_test(Drifting())
    broken = Broken()
    with pytest.raises(SelfTestFailed, match="not finite"):
        self_test(broken)
    assert not broken.held


@pytest.mark.parametrize("layers", [(0, 3), (4, 15)])
def test_real_bands_agree_at_other_pool_sizes(embedded_folder: Path, layers: tuple[int, int]) -> None:
    digests = set()
    for extra_slots in (0, 60):
        with open_band(embedded_folder, extra_slots, layers=layers, backend="auto") as band:
            digests.add(self_test(EngineBand(band)))
            assert band.sums()[4] == 18
    assert len(digests) == 1

"""Kernels of every instruction set of this processor, with any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from streamoe_engine import kernels

MakeKernels = Callable[[int], kernels.Kernels]


@pytest.fixture(params=kernels.available_isas() or [pytest.param("none", marks=pytest.mark.skip("not built"))])
def make_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeKernels]:
    """Kernels with so many threads; closed at the end of the test."""
    monkeypatch.setenv(kernels.ISA_VARIABLE, request.param)
    made: list[kernels.Kernels] = []

    def make(threads: int) -> kernels.Kernels:
        one = kernels.load(threads)
        assert one is not None and one.isa == request.param
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()

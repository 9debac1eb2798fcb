"""Model folders shared by the tests, converted once a session."""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from tests.checkpoints import write_checkpoint


def pytest_collection_finish() -> None:
    """Keep what collecting made out of the collector's sight.

    Loading a text and opening a band collect garbage first, so as to measure themselves; over the objects of some
    thousand tests that takes half a second each time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Path]]:
    """A function from family (and dtype) to (checkpoint, model folder) of a random tiny model, 4-bit."""
    root, made = tmp_path_factory.mktemp("tiny"), {}

    from streamoe_engine.checkpoint import convert

    def folder(family: str, dtype: str = "bfloat16") -> tuple[Path, Path]:
        if (family, dtype) not in made:
            source = write_checkpoint(root / f"{family}-{dtype}", family, dtype=dtype)  # type: ignore[arg-type]
            convert(source, root / f"{family}-{dtype}-model")
            made[family, dtype] = source, root / f"{family}-{dtype}-model"
        return made[family, dtype]

    return folder


@pytest.fixture(scope="session")
def embedded_checkpoint() -> Path:
    """The embedded model as it is shipped."""
    return Path(str(files("streamoe_coordinator"))) / "embedded"


@pytest.fixture(scope="session")
def embedded_folder(embedded_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model, converted."""
    from streamoe_engine.checkpoint import convert

    target = tmp_path_factory.mktemp("embedded") / "model"
    convert(embedded_checkpoint, target)
    return target

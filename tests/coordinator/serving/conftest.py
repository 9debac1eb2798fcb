"""One real server with the embedded model, shared by the tests of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.coordinator.serving.server import ServerProcess

MODEL = "streamoe-embedded"


@pytest.fixture(scope="session")
def server(clean_environment: dict[str, str], embedded_folder: Path) -> Iterator[ServerProcess]:
    """Serves the embedded model, four sequences together, as `streamoe-embedded`."""
    args = (embedded_folder, "--budget", "384MiB", "--sequences", "4", "--alias", MODEL, "--checkpoints", "48MiB")
    with ServerProcess(clean_environment, *args) as process:
        yield process

"""What one process says: the measure of every cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster.machines import Cluster, chat_alone

Alone = Callable[[str, int], list[int]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def alone(embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """A function from prompt and number of tokens to what `streamoe chat` answers."""
    home, known = tmp_path_factory.mktemp("alone"), {}

    def ask(prompt: str, max_tokens: int) -> list[int]:
        if (prompt, max_tokens) not in known:
            known[prompt, max_tokens] = chat_alone(embedded_folder, home, "500MiB", prompt, max_tokens)["token_ids"]
        return known[prompt, max_tokens]

    return ask


@pytest.fixture
def cluster(embedded_folder: Path, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(embedded_folder, tmp_path) as nodes:
        yield nodes

"""The configuration file: written, read back, below flags and environment, refused when it cannot be meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streamoe_engine.errors import UsageError
from streamoe_node.config import config_file, read_config, write_config
from streamoe_node.opening import EngineFlags, band_options


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_what_is_written_is_read_and_other_keys_stay() -> None:
    assert read_config() == {}
    assert write_config({"guess": "none", "reader_threads": 4}) == config_file()
    assert write_config({"guess": "cross-layer", "guess_width": 2}) == config_file()
    assert read_config() == {"guess": "cross-layer", "reader_threads": 4, "guess_width": 2}


@pytest.mark.parametrize("content", ["guess = ", "color = 1", "guess = 1", "guess_width = true", "\udcff"])
def test_a_file_that_cannot_be_meant_is_named(content: str) -> None:
    config_file().parent.mkdir(parents=True)
    config_file().write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=str(config_file())):
        read_config()


def test_flags_go_before_the_file_and_the_file_before_the_engine(
    tiny_folder: Callable[..., tuple[Path, Path]],
) -> None:
    _, folder = tiny_folder("qwen3_5_moe")

    def opened(**flags: object) -> tuple[object, ...]:
        options = band_options(EngineFlags("1GiB", **flags), folder, 0, is_embedded=False)  # type: ignore[arg-type]
        return options.guess, options.guess_width, options.reader_threads

    engine = opened()
    write_config({"guess": "previous-token", "guess_width": 3, "reader_threads": 4})
    assert engine != opened() == ("previous-token", 3, 4)
    assert opened(guess="none", guess_width=0, reader_threads=1) == ("none", 0, 1)
    write_config({"guess": "clairvoyant"})
    with pytest.raises(UsageError, match="clairvoyant"):
        opened()

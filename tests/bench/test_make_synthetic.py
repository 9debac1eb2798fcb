"""The synthetic checkpoint writer, run as its users run it, against what mlx-lm expects of such a checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from bench.synthetic import noise
from bench.synthetic.shapes import PRESETS
from bench.synthetic.tokenizer import END_OF_TEXT_ID, END_OF_TURN_ID, START_OF_TURN_ID, write_tokenizer
from mlx.utils import tree_flatten
from tokenizers import Tokenizer

from streamoe_engine import skeleton

SCRIPT = Path(__file__).parents[2] / "bench" / "make_synthetic.py"
WEIGHTS = "model-00001-of-00001.safetensors"


def write(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--preset", "tiny", "--out", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def tensors_of(folder: Path) -> dict[str, mx.array]:
    return {name: array for path in sorted(folder.glob("*.safetensors")) for name, array in mx.load(str(path)).items()}


def quantized_model(config: dict[str, Any]) -> nn.Module:
    """mlx-lm's own model of a configuration, quantised as its `quantization` entry says."""
    model, quantization = skeleton.build_model(config), config["quantization"]
    nn.quantize(
        model,
        group_size=quantization["group_size"],
        bits=quantization["bits"],
        class_predicate=lambda path, module: hasattr(module, "to_quantized") and quantization.get(path, True),
    )
    return model


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic") / "tiny"
    done = write(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_names_shapes_and_types_are_those_of_mlx_lm(checkpoint: Path) -> None:
    expected = dict(tree_flatten(quantized_model(config_of(checkpoint)).parameters()))
    found = tensors_of(checkpoint)
    assert {n: a.shape for n, a in found.items()} == {n: a.shape for n, a in expected.items()}
    assert {n for n, a in found.items() if a.dtype == mx.uint32} == {
        n for n, a in expected.items() if a.dtype == mx.uint32
    }
    assert all(a.dtype == mx.float32 for n, a in found.items() if n.endswith("A_log"))


def test_mlx_lm_runs_it_with_sane_activations(checkpoint: Path) -> None:
    config = config_of(checkpoint)
    model = quantized_model(config)
    weights = tensors_of(checkpoint)
    sanitized = model.sanitize(dict(weights))
    model.load_weights(list(sanitized.items()), strict=True)
    model.set_dtype(mx.float32)
    assert all(mx.array_equal(sanitized[name], array).item() for name, array in weights.items())
    logits = np.array(model(mx.arange(32)[None]))
    assert logits.shape == (1, 32, config["text_config"]["vocab_size"])
    assert 0.5 < logits.std() < 2.0


def test_one_seed_gives_one_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    assert write(tmp_path / "same").returncode == 0
    assert write(tmp_path / "other", "--seed", "1").returncode == 0
    names = sorted(path.name for path in checkpoint.iterdir())
    assert names == sorted(path.name for path in (tmp_path / "same").iterdir())
    assert all((tmp_path / "same" / name).read_bytes() == (checkpoint / name).read_bytes() for name in names)
    assert (tmp_path / "other" / WEIGHTS).read_bytes() != (checkpoint / WEIGHTS).read_bytes()


def test_shards_hold_the_same_tensors(checkpoint: Path, tmp_path: Path) -> None:
    assert write(tmp_path / "shards", "--shard-gb", "0.002").returncode == 0
    index = json.loads((tmp_path / "shards" / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 3
    whole, parts = tensors_of(checkpoint), tensors_of(tmp_path / "shards")
    assert index["weight_map"].keys() == whole.keys()
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in whole.values())
    assert all(mx.array_equal(parts[name], array, equal_nan=True).item() for name, array in whole.items())


def test_settings_change_the_shape_and_skew_the_routing(tmp_path: Path) -> None:
    assert write(tmp_path / "m", "--set", "experts=16", "--set", "layers=2", "--router-skew", "1.5").returncode == 0
    tensors = tensors_of(tmp_path / "m")
    path = "language_model.model.layers.1.mlp."
    assert tensors[path + "switch_mlp.up_proj.weight"].shape == (16, 128, 256 // 8)
    parts = (tensors[f"{path}gate.{part}"] for part in ("weight", "scales", "biases"))
    norms = np.linalg.norm(np.array(mx.dequantize(*parts, group_size=64, bits=8).astype(mx.float32)), axis=1)
    assert norms.max() / np.median(norms) > 3


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("hidden=100", "hidden is 100, which is no multiple of 64"),
        ("top_k=33", "top_k at most experts"),
        ("vocab=258", "vocab is 258, below the 259"),
        ("depth=3", "'depth' is not a key of a shape"),
        ("layers=-1", "'layers=-1' is not layers=N"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_before_writing(tmp_path: Path, setting: str, words: str) -> None:
    done = write(tmp_path / "m", "--set", setting)
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "m").exists()


def test_more_than_the_disk_holds_is_refused_before_writing(tmp_path: Path) -> None:
    done = write(tmp_path / "m", "--set", "vocab=900000000000")
    assert done.returncode == 2
    assert "the checkpoint takes" in done.stderr
    assert not (tmp_path / "m").exists()


def test_a_folder_with_files_is_refused(checkpoint: Path) -> None:
    done = write(checkpoint)
    assert done.returncode == 2
    assert "is not empty" in done.stderr


def test_the_full_size_vocabulary_loads_and_turns_text_into_ids_and_back(tmp_path: Path) -> None:
    size = PRESETS["qwen36-35b"].vocab
    write_tokenizer(tmp_path, size)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert size == 248320
    assert tokenizer.get_vocab_size() == size
    text = "Grüße, 世界 🙂\n\tif x < 3:"
    ids = tokenizer.encode(text).ids
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text
    special = tokenizer.encode("<|im_start|>a<|im_end|><|endoftext|>").ids
    assert special == [START_OF_TURN_ID, ord("a"), END_OF_TURN_ID, END_OF_TEXT_ID]
    assert tokenizer.decode([size - 1]) == f"<t{size - 1}>"


def test_drawing_in_pieces_gives_the_values_of_drawing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> list[np.ndarray]:
        makers = (noise.code_pieces(3, "a", 1000), noise.scale_pieces(3, "a", 500, 1.0))
        return [np.concatenate(list(pieces)) for pieces in (*makers, noise.bias_pieces(3, "a", 500, 1.0))]

    whole = drawn()
    monkeypatch.setattr(noise, "PIECE_BYTES", 64)
    assert all(np.array_equal(a, b) for a, b in zip(whole, drawn(), strict=True))


def test_most_of_the_mid_preset_is_experts_and_they_pass_a_cap_of_1_gib() -> None:
    shape = PRESETS["mid"]
    record_bytes = 3 * shape.hidden * shape.expert_dim * 9 // 16
    assert record_bytes % 16384 == 0
    assert shape.layers * shape.experts * record_bytes > 1.5 * 2**30

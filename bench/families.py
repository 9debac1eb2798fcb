"""Families whose layers C does not know: MLX alone beside MLX's modules with C's matrices and experts.

    python -m bench.families --out ROWS.csv [--rounds 3] [--folder KEEP]

Makes a mid-size random model of each family (200 MB, 4 bits), then measures both ways in turn, each run in a process
of its own: forced tokens, everything in memory, so that arithmetic is what is compared.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from streamoe_engine.checkpoint import convert
from tests.checkpoints import write_checkpoint
from tests.tiny_models import TINY_CONFIGS

WIDER: dict[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 6,
    "num_attention_heads": 16,
    "vocab_size": 32768,
    "moe_intermediate_size": 512,
    "n_routed_experts": 32,
    "num_experts_per_tok": 4,
    "max_position_embeddings": 8192,
}
SHAPES: dict[str, dict[str, Any]] = {
    "glm4_moe": WIDER | {"num_key_value_heads": 4, "head_dim": 128},
    "deepseek_v3": WIDER
    | {"num_key_value_heads": 16, "kv_lora_rank": 512, "q_lora_rank": 768}
    | {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128},
}
BACKENDS = ("mlx", "kernels")
SHOWN = ("tokens_per_s", "tokens_per_s_p10", "tokens_per_s_p90", "prefill_tokens_per_s", "slots", "peak_bytes")


def make_model(family: str, folder: Path) -> Path:
    """The model folder of a family; one that is there already is used again."""
    target = folder / f"{family}-model"
    if not target.exists():
        config = TINY_CONFIGS[family] | SHAPES[family]
        convert(write_checkpoint(folder / family, family, dtype="bfloat16", config=config), target)
    return target


def measure(model: Path, backend: str) -> dict[str, Any]:
    """One run of `streamoe bench run`."""
    flags = [
        "--budget",
        "450MiB",
        "--backend",
        backend,
        "--forced",
        "--tokens",
        "32",
        "--prompt-tokens",
        "64",
        "--json",
    ]
    argv = [sys.executable, "-m", "streamoe_coordinator", "bench", "run", str(model), *flags]
    figures: dict[str, Any] = json.loads(subprocess.run(argv, capture_output=True, check=True, text=True).stdout)
    return {name: figures[name] for name in SHOWN}


def main() -> None:
    """Measure, write the rows, print ratios of medians."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", required=True, type=Path)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--folder", type=Path, help="where models are made and kept")
    asked = made.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp())
    models = {family: make_model(family, folder) for family in SHAPES}
    keys = [(number, family, backend) for number in range(asked.rounds) for family in SHAPES for backend in BACKENDS]
    rows = [
        {"round": number, "family": family, "backend": backend, **measure(models[family], backend)}
        for number, family, backend in keys
    ]
    with asked.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for family in SHAPES:
        for name in ("tokens_per_s", "prefill_tokens_per_s"):
            mlx, c = (median(r[name] for r in rows if (r["family"], r["backend"]) == (family, b)) for b in BACKENDS)
            print(f"{family:12} {name:22} MLX {mlx:7.2f}  with C {c:7.2f}  {c / mlx:.1f} times")


if __name__ == "__main__":
    main()

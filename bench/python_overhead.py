"""What Python costs a decode layer: every expert hot, and C functions that do nothing.

    python -m bench.python_overhead                 microseconds a layer
    python -m bench.python_overhead --profile       and where they go
    python -m bench.python_overhead --budget 160MiB misses too, of records of two pages

The shape is Qwen3.6-35B's in what Python sees (40 layers, 256 experts, top 8); matrices are tiny. Each C function that
computes is replaced by one that returns at once and takes the same arguments, so that crossing into C is paid and its
work is not; routing and reading are real. Router logits are noise, new for each token. The time is the compute thread's
own CPU time: neighbours on the machine and waits for reads are not in it.
"""

from __future__ import annotations

import argparse
import cProfile
import ctypes
import pstats
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from bench.synthetic.mlx_files import write_folder
from bench.synthetic.mlx_layout import Recipe
from bench.synthetic.shapes import PRESETS

from streamoe_engine.band import Band, BandOptions
from streamoe_engine.checkpoint.conversion import convert
from streamoe_engine.layers.kernel_layers import KernelLayers
from streamoe_engine.sizes import parse_size

LAYERS, HIDDEN = 40, 64
# One layer more than is run: a band that begins after the first layer is given hidden states and reads no embedding.
SHAPE = replace(PRESETS["tiny"], layers=LAYERS + 1, hidden=HIDDEN, experts=256, top_k=8, expert_dim=64, shared_dim=64)
# What computes. What moves records stays as it is.
COMPUTING = ("st_gdn_layer", "st_attention_layer", "st_shared_expert", "st_expert_token", "st_combine", "st_rms_norm")


def make_folder(parent: Path) -> Path:
    """The model, converted; a few seconds."""
    source, folder = parent / "source", parent / "model"
    write_folder(Recipe(SHAPE, 0, 0.38, 1.0), source, 10**9)
    convert(source, folder)
    return folder


def stub(lib: ctypes.CDLL, kept: ctypes.CDLL) -> None:
    """Each computing function of `lib` becomes one that takes its arguments and does nothing."""
    for name, function in list(vars(lib).items()):
        if name.startswith(COMPUTING) and name.endswith(("_run", "_token", "_shared", "_combine", "_norm")):
            idle = ctypes.CDLL(kept._name)["st_abi"]  # surplus arguments are ignored by every calling convention here
            idle.argtypes, idle.restype = function.argtypes, None
            setattr(lib, name, idle)


def make_all_hot(layers: KernelLayers) -> None:
    """Read every expert that there is a slot for."""
    streamer = layers._streamer
    for layer in streamer._layers.values():
        for first in range(0, SHAPE.experts, SHAPE.top_k):
            placed = streamer._flow.place(layer.records, range(first, first + SHAPE.top_k))
            for _ in streamer._flow.landed(layer.records, placed):
                pass
            streamer._flow.settle(placed.slots)


def run_tokens(band: Band, num_tokens: int) -> list[float]:
    """CPU seconds of each token, of this thread."""
    layers, state, random, seconds = band._parts.layers, band.new_state(), np.random.default_rng(1), []
    assert isinstance(layers, KernelLayers)
    hidden = np.zeros((1, HIDDEN), np.float32)
    for _ in range(num_tokens):
        for logits in (layers._buffers.router, layers._buffers.guess):
            logits[:] = 0
            logits[0] = random.standard_normal(logits.shape[1])
        start = time.thread_time()
        band.run(state, hidden, "nothing")
        seconds.append(time.thread_time() - start)
    state.release()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--budget", default="1GiB", help="too small for all experts: misses too")
    parser.add_argument("--folder", type=Path, help="keep the model here, or use the one that is here")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        parent = asked.folder or Path(scratch)
        folder = parent / "model" if (parent / "model").is_dir() else make_folder(parent)
        options: dict[str, Any] = {"ctx_tokens": asked.tokens + 1, "layers": (1, LAYERS), "chunk_tokens": 8}
        with Band.open(folder, BandOptions(parse_size(asked.budget), backend="kernels", threads=1, **options)) as band:
            layers = band._parts.layers
            assert isinstance(layers, KernelLayers)
            make_all_hot(layers)
            stub(layers._kernels.lib, layers._kernels.lib)
            run_tokens(band, 20)
            before = band.telemetry()
            seconds = run_tokens(band, asked.tokens)
            counts = band.telemetry().since(before)
            middle, best = median(seconds) / LAYERS * 1e6, min(seconds) / LAYERS * 1e6
            print(f"{middle:.0f} us a layer, median of {asked.tokens} tokens; at best {best:.0f}")
            print(f"hit rate {counts.hit_rate:.3f}")
            if asked.profile:
                profile = cProfile.Profile()
                profile.runcall(run_tokens, band, asked.tokens)
                pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()

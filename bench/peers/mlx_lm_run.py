"""mlx-lm itself on forced tokens: the whole model in memory, activations and scales in float32.

    python -m bench.peers.mlx_lm_run CHECKPOINT --tokens 8

float32 because MLX's bfloat16 kernels for x86 are four times slower still. There is no limit it could live under:
the weights take what they take.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version

import mlx.core as mx
import numpy as np
from bench.peers import forced
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from numpy.typing import NDArray


def open_engine(asked: argparse.Namespace) -> forced.Opened:
    """mlx-lm's model of a checkpoint, every weight read."""
    model, config = load_model(asked.model, lazy=True)
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    cache = make_prompt_cache(model)

    def step(ids: NDArray[np.int32]) -> NDArray[np.float32]:
        return np.array(model(mx.array(ids)[None], cache=cache)[0, -1])

    vocab_size = config.get("text_config", config)["vocab_size"]
    engine = f"mlx-lm {version('mlx-lm')}, mlx {version('mlx')}"
    return forced.Opened(engine, vocab_size, step, f"in memory, float32, on the {mx.default_device().type.name}")


if __name__ == "__main__":
    forced.run(forced.parser(__doc__).parse_args(), open_engine)

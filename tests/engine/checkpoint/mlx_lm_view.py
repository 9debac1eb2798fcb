"""What mlx-lm itself makes of checkpoints: its loader, and its quantisation, saved tensor by tensor.

Run as a process of its own, since importing mlx_lm.utils lowers the limit of open files. Each argument is
SOURCE=MODE=OUT: MODE "auto" quantises what is not quantised yet, "keep" does not.
"""

import contextlib
import io
import sys
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model, quantize_model

for argument in sys.argv[1:]:
    source, mode, out = argument.split("=")
    model, config = load_model(Path(source), lazy=True)
    described = config.get("quantization") or config.get("quantization_config")
    if mode == "auto" and not described:
        with contextlib.redirect_stdout(io.StringIO()):
            model, config = quantize_model(model, config, 64, 4)
    mx.save_safetensors(out, dict(tree_flatten(model.parameters())))

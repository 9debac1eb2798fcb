"""Write a Qwen3.5/3.6-style Mixture-of-Experts checkpoint with random weights, of full size or smaller.

    python bench/make_synthetic.py --preset qwen36-35b --out DIR                    19.5 GB, MLX 4-bit
    python bench/make_synthetic.py --preset mid --out DIR --set layers=8
    python bench/make_synthetic.py --preset qwen36-35b --format gguf --out FILE     for llama.cpp; needs `gguf`
    python bench/make_synthetic.py ... --format gguf --encoding q4_1 --out FILE     the weights of the MLX folder

Shape, tensor names and bit widths are those of the published 4-bit checkpoints; the weights are noise of a sane
scale, and the routers' rows have log-normal norms, so that a few experts take far more picks. Streams:
under 0.1 GB of memory (GGUF: the largest tensor, twice or so), and no pages left in the cache.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from synthetic.gguf_blocks import ENCODINGS
from synthetic.gguf_file import write_file
from synthetic.mlx_files import write_folder
from synthetic.mlx_layout import Recipe, tensors
from synthetic.shapes import PRESETS, with_settings

AFFINE_BITS_PER_WEIGHT = 4.5  # 4-bit codes, and a 16-bit scale and bias for 64 of them


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", required=True, type=Path, help="folder (mlx) or file (gguf)")
    made.add_argument("--format", choices=("mlx", "gguf"), default="mlx")
    made.add_argument("--encoding", choices=sorted(ENCODINGS), default="q4_0", help="of the matrices in a GGUF file")
    made.add_argument("--preset", choices=sorted(PRESETS), default="tiny")
    made.add_argument("--set", action="append", default=[], metavar="KEY=N", help="override one value of the preset")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--router-skew", type=float, default=0.38, help="sigma of router rows' log-norm (0: even use)")
    made.add_argument("--router-std", type=float, default=1.0, help="median standard deviation of a router logit")
    made.add_argument("--shard-gb", type=float, default=5.0, help="largest safetensors file, in 10^9 bytes")
    return made


def check_space(out: Path, needed_bytes: int) -> None:
    """Raises OSError when the disk of `out` has not the bytes that the checkpoint takes."""
    place = next(folder for folder in (out, *out.absolute().parents) if folder.is_dir())
    free_bytes = shutil.disk_usage(place).free
    if needed_bytes > free_bytes:
        raise OSError(f"the checkpoint takes {needed_bytes} B, {place} has {free_bytes} B free")


def main() -> None:
    """Parse the command line, check the disk, write."""
    made = parser()
    asked = made.parse_args()
    try:
        shape = with_settings(PRESETS[asked.preset], asked.set)
        recipe = Recipe(shape, asked.seed, asked.router_skew, asked.router_std)
        needed_bytes = sum(tensor.num_bytes for tensor in tensors(recipe))
        if asked.format == "gguf":
            needed_bytes = int(needed_bytes * ENCODINGS[asked.encoding].bits_per_weight / AFFINE_BITS_PER_WEIGHT)
        check_space(asked.out, needed_bytes)
        if asked.format == "mlx":
            num_bytes = write_folder(recipe, asked.out, int(asked.shard_gb * 1e9))
        else:
            num_bytes = write_file(recipe, asked.out, asked.encoding)
    except (ValueError, OSError) as error:
        made.error(str(error))
    except ImportError as error:
        made.error(f"{error}: pip install gguf")
    print(f"wrote {num_bytes} B ({num_bytes / 2**30:.2f} GiB) to {asked.out}")


if __name__ == "__main__":
    main()

"""Source checkpoints, and their conversion to a model folder: streaming, resumable, hashed, whole or not there.

Knows Hugging Face's and mlx-community's safetensors and the model folder's format. Refuses to know inference.
"""

from .conversion import convert
from .options import ConvertOptions, Progress
from .source import is_checkpoint
from .verify import verify_folder

__all__ = ["ConvertOptions", "Progress", "convert", "is_checkpoint", "verify_folder"]

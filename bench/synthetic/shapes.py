"""The shapes a synthetic checkpoint can have: presets, and single values set by hand.

Owns the numbers and what must hold between them. Refuses to know names of tensors and files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

MIN_VOCAB = 256 + 3  # the bytes, and three special tokens
GROUP = 64  # weights that share a scale and a bias; every quantised row is a multiple of it


@dataclass(frozen=True, slots=True)
class Shape:
    """Widths and counts of one model. Every `full_interval`-th layer has full attention, the others gated delta.

    Raises ValueError for values that cannot form a model.
    """

    hidden: int
    layers: int
    full_interval: int
    experts: int
    top_k: int
    expert_dim: int
    shared_dim: int
    heads: int
    kv_heads: int
    head_dim: int
    linear_value_heads: int
    linear_key_heads: int
    linear_head_dim: int
    conv_kernel: int
    vocab: int
    ctx_tokens: int

    def __post_init__(self) -> None:
        bad = [name for name, value in asdict(self).items() if value < 1]
        if bad:
            raise ValueError(f"{', '.join(bad)} must be at least 1")
        widths = {"hidden": self.hidden, "expert_dim": self.expert_dim, "shared_dim": self.shared_dim}
        widths |= {"heads * head_dim": self.heads * self.head_dim}
        widths |= {"linear_value_heads * linear_head_dim": self.linear_value_dim}
        for name, width in widths.items():
            if width % GROUP:
                raise ValueError(f"{name} is {width}, which is no multiple of {GROUP}")
        for many, few in (("heads", "kv_heads"), ("linear_value_heads", "linear_key_heads")):
            if getattr(self, many) % getattr(self, few):
                raise ValueError(f"{many} {getattr(self, many)} is no multiple of {few} {getattr(self, few)}")
        if self.vocab < MIN_VOCAB:
            raise ValueError(f"vocab is {self.vocab}, below the {MIN_VOCAB} tokens that every text needs")
        if self.head_dim % 8 or self.top_k > self.experts:
            raise ValueError("head_dim must be a multiple of 8, and top_k at most experts")

    @property
    def linear_key_dim(self) -> int:
        """Width of all key heads of a gated-delta layer together."""
        return self.linear_key_heads * self.linear_head_dim

    @property
    def linear_value_dim(self) -> int:
        """Width of all value heads of a gated-delta layer together."""
        return self.linear_value_heads * self.linear_head_dim

    @property
    def conv_dim(self) -> int:
        """Channels of a gated-delta layer's convolution: queries, keys and values."""
        return 2 * self.linear_key_dim + self.linear_value_dim

    @property
    def rope_sections(self) -> list[int]:
        """Rotary pairs given to time, height and width; a quarter of a head is rotated."""
        pairs = self.head_dim // 8
        third = pairs // 3
        return [third + 1, third + 1, third] if pairs % 3 == 2 else [pairs - 2 * third, third, third]

    def is_full(self, layer: int) -> bool:
        """Whether a layer has full attention."""
        return (layer + 1) % self.full_interval == 0


PRESETS = {
    "qwen36-35b": Shape(
        hidden=2048,
        layers=40,
        full_interval=4,
        experts=256,
        top_k=8,
        expert_dim=512,
        shared_dim=512,
        heads=16,
        kv_heads=2,
        head_dim=256,
        linear_value_heads=32,
        linear_key_heads=16,
        linear_head_dim=128,
        conv_kernel=4,
        vocab=248320,
        ctx_tokens=262144,
    ),
    # 1.9 GB, of which 1.8 are 2048 experts of 864 KiB: a cap of 1 GiB holds less than half of them.
    "mid": Shape(
        hidden=1024,
        layers=16,
        full_interval=4,
        experts=128,
        top_k=8,
        expert_dim=512,
        shared_dim=512,
        heads=8,
        kv_heads=2,
        head_dim=128,
        linear_value_heads=16,
        linear_key_heads=8,
        linear_head_dim=128,
        conv_kernel=4,
        vocab=32768,
        ctx_tokens=32768,
    ),
    "small": Shape(
        hidden=512,
        layers=8,
        full_interval=4,
        experts=64,
        top_k=8,
        expert_dim=128,
        shared_dim=128,
        heads=4,
        kv_heads=2,
        head_dim=128,
        linear_value_heads=8,
        linear_key_heads=4,
        linear_head_dim=64,
        conv_kernel=4,
        vocab=4096,
        ctx_tokens=32768,
    ),
    "tiny": Shape(
        hidden=256,
        layers=4,
        full_interval=4,
        experts=32,
        top_k=4,
        expert_dim=128,
        shared_dim=128,
        heads=4,
        kv_heads=2,
        head_dim=64,
        linear_value_heads=4,
        linear_key_heads=2,
        linear_head_dim=64,
        conv_kernel=4,
        vocab=512,
        ctx_tokens=4096,
    ),
}


def with_settings(shape: Shape, settings: Iterable[str]) -> Shape:
    """The shape with values replaced by "KEY=N" texts. Raises ValueError for an unknown key or no number."""
    values, known = asdict(shape), [field.name for field in fields(Shape)]
    for setting in settings:
        key, _, number = setting.partition("=")
        if key not in known:
            raise ValueError(f"'{key}' is not a key of a shape; the keys are {', '.join(known)}")
        if not number.isdecimal():
            raise ValueError(f"'{setting}' is not {key}=N with a whole number N")
        values[key] = int(number)
    return Shape(**values)

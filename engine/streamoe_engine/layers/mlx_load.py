"""A band's weights in mlx-lm's modules, and what multiplies by them: MLX, or the C kernels where they can.

Owns the order: modules of other bands are emptied before anything is evaluated, weights are loaded, then the kernels
take over. Refuses to know streaming of experts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from .. import mlx_lm_import as lm
from ..experts import ExpertMath
from ..head_stream import HeadStream
from ..kernels import Kernels
from ..manifest import TAIL_PART
from ..plan import resident_parts
from ..plan_types import Plan
from ..skeleton import head_path, module_at, replace_module
from ..store import ModelStore
from ..streaming import Streaming
from .kernel_head import streamed_head
from .kernel_linear import KernelExpertsOfMlx, KernelLinear, as_rows
from .kernel_math import KernelExpertMath, expert_buffers, kernel_reason
from .kernel_swap import format_fits, swap, swappable
from .mlx_head import Head, MlxHead, StreamedMlxHead
from .mlx_math import MlxExpertMath
from .mlx_resident import fill_modules


def load_band(
    model: nn.Module, inner: Any, store: ModelStore, plan: Plan, head_stream: HeadStream | None, native: Kernels | None
) -> Head | None:
    """Fill the band's modules, empty the others; returns the head in the last band.

    native: the kernels that take over what they can. Raises ModelFolderError and the store's errors.
    """
    manifest, embedding = store.manifest, store.manifest.embedding.module
    for number in range(len(inner.layers)):
        if not plan.first_layer <= number <= plan.last_layer:
            inner.layers[number] = nn.Module()
    head, has_head = head_path(model, embedding) or embedding, plan.last_layer == manifest.num_layers - 1
    if not has_head:
        inner.norm = nn.Module()
    if not has_head or head_stream is not None:
        replace_module(model, head, _only_bias(module_at(model, head)) if has_head else nn.Module())
    if not has_head or head != embedding:
        replace_module(model, embedding, nn.Module())
    parts = resident_parts(manifest, plan.first_layer, plan.last_layer, has_streamed_head=head_stream is not None)
    swapped = [] if native is None else swappable(model, {f.name: f for part in parts.values() for f in part})
    tail = {field.name: field for field in manifest.resident[TAIL_PART]}
    head_native = native if has_head and format_fits(manifest.hidden_size, head, tail) else None
    as_stored = {*swapped, *([head] if head_native else [])}
    fill_modules(model, store, parts, getattr(mx, plan.compute_dtype), as_stored)
    if native is not None:
        swap(model, swapped, native)
    return _head(module_at(model, head), head_stream, head_native) if has_head else None


def expert_maths(
    streaming: Streaming,
    plan: Plan,
    width: int,
    activations: Mapping[int, Callable[..., mx.array]],
    native: Kernels | None,
) -> dict[int, ExpertMath]:
    """Each layer's arithmetic: the kernels' where the experts are gated with SiLU and packed as they take it."""
    maths: dict[int, ExpertMath] = {
        e.layer: MlxExpertMath(streaming.pool, e, activations[e.layer]) for e in streaming.entries
    }
    for_kernels = [e for e in streaming.entries if not kernel_reason(e) and _is_silu(activations[e.layer])]
    if native is not None and for_kernels:
        buffers = expert_buffers(for_kernels, width, plan)
        for entry in for_kernels:
            maths[entry.layer] = KernelExpertsOfMlx(KernelExpertMath(native, streaming.pool, entry, buffers))
    return maths


def _is_silu(activation: Any) -> bool:
    return type(activation) is lm.switch_layers.SwiGLU


def _head(module: Any, stream: HeadStream | None, native: Kernels | None) -> Head:
    """module: the head's, swapped already where it was a Linear."""
    if stream is None:
        if native is None or isinstance(module, KernelLinear):
            return module if isinstance(module, KernelLinear) else MlxHead(module)
        return KernelLinear(native, module)
    bias = module.get("bias")
    if native is None:
        return StreamedMlxHead(stream, bias)
    logits = streamed_head(native, stream, None if bias is None else np.array(bias.astype(mx.float32)))
    return lambda hidden: mx.array(logits(as_rows(hidden)))


def _only_bias(head: nn.Module) -> nn.Module:
    """What stays of a head whose matrix is streamed."""
    left = nn.Module()
    if "bias" in head:
        left.bias = head.bias
    return left

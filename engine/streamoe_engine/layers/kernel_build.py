"""Putting a band together for the C kernels: weights in an arena, layers described, streams connected.

Owns the construction only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from .. import kernels
from ..arena import ResidentArena
from ..embedding import StreamedEmbedding
from ..experts import Recorder
from ..guess import Guesser, GuessName, make_guesser
from ..head_stream import HeadStream
from ..manifest import ExpertLayer
from ..plan import resident_parts
from ..plan_types import Plan
from ..skeleton import build_model, head_path, module_at, parent_of
from ..store import ModelStore
from ..streaming import Streaming
from .kernel_describe import Describer
from .kernel_head import KernelHead, resident_head, streamed_head
from .kernel_layers import KernelEnds, KernelLayer, KernelLayers
from .kernel_math import KernelExpertMath, expert_buffers


def build_kernel_layers(
    store: ModelStore,
    plan: Plan,
    streaming: Streaming,
    guess: GuessName | Guesser,
    threads: int,
    recorder: Recorder | None,
    head_stream: HeadStream | None,
) -> KernelLayers:
    """The band of `plan`, loaded. Raises the store's errors and PlatformUnsupported."""
    manifest = store.manifest
    model = build_model(store.config())  # never evaluated: only asked for heads and widths
    inner_path = parent_of(manifest.embedding.module)
    inner = module_at(model, inner_path)
    arena = ResidentArena(
        resident_parts(manifest, plan.first_layer, plan.last_layer, has_streamed_head=head_stream is not None)
    )
    arena.load(store)
    describer = Describer(arena, inner, inner_path, plan.kv)
    guesser = make_guesser(guess, plan.guess_width, streaming.following, has_scores=True)
    layers = [_layer(describer, inner, entry, streaming, guesser) for entry in streaming.entries]
    native = kernels.load(threads)
    assert native is not None, "the path was chosen because there are kernels"
    shared = {layer.number: layer.shared for layer in layers}
    shared_width = max((one.expert.gate.rows for one in shared.values() if one is not None), default=0)
    buffers = expert_buffers(streaming.entries, manifest.hidden_size, plan, shared_width)
    maths = {e.layer: KernelExpertMath(native, streaming.pool, e, buffers, shared[e.layer]) for e in streaming.entries}
    streamer = streaming.streamer(maths, plan.guess_width, recorder)
    head: KernelHead | None = None
    if head_stream is not None:
        head = streamed_head(native, head_stream)
    elif plan.last_layer == manifest.num_layers - 1:
        head = resident_head(
            native, describer.matrix(head_path(model, manifest.embedding.module) or manifest.embedding.module)
        )
    ends = _ends(describer, inner, head, store, plan)
    return KernelLayers(native, layers, ends, streamer, guesser, _rope_base(inner), plan, arena)


def _layer(describer: Describer, inner: Any, entry: ExpertLayer, streaming: Streaming, guesser: Guesser) -> KernelLayer:
    guesses_next = guesser.wants_scores and entry.layer in streaming.following
    return KernelLayer(
        entry.layer,
        describer.layer(entry.layer, guesses_next=guesses_next),
        describer.shared_expert(entry.layer),
        entry.top_k,
        bool(inner.layers[entry.layer].mlp.norm_topk_prob),
    )


def _ends(describer: Describer, inner: Any, head: KernelHead | None, store: ModelStore, plan: Plan) -> KernelEnds:
    embed = _embed(store) if plan.first_layer == 0 else None
    norm = None if head is None else describer.vector(f"{parent_of(store.manifest.embedding.module)}.norm.weight")
    return KernelEnds(embed, norm, float(inner.norm.eps), head)


def _embed(store: ModelStore) -> Callable[[np.ndarray], np.ndarray]:
    entry = store.manifest.embedding
    table = StreamedEmbedding(entry, store.open_records(entry.file), mx.float32)
    return lambda ids: np.array(table(mx.array(ids.astype(np.int32))))


def _rope_base(inner: Any) -> float:
    bases = {float(layer.self_attn.rope.base) for layer in inner.layers if hasattr(layer, "self_attn")}
    assert len(bases) <= 1, "one rotary base a model"
    return bases.pop() if bases else 1.0

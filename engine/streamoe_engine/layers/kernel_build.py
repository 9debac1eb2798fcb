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
from ..manifest import TAIL_PART, ExpertLayer, layer_part
from ..plan_types import Plan
from ..skeleton import build_model, head_path, module_at, parent_of
from ..store import ModelStore
from ..streaming import Streaming
from .kernel_describe import Describer
from .kernel_layers import KernelEnds, KernelLayer, KernelLayers
from .kernel_math import ExpertBuffers, KernelExpertMath


def build_kernel_layers(
    store: ModelStore,
    plan: Plan,
    streaming: Streaming,
    guess: GuessName | Guesser,
    threads: int,
    recorder: Recorder | None,
) -> KernelLayers:
    """The band of `plan`, loaded. Raises the store's errors and PlatformUnsupported."""
    manifest = store.manifest
    model = build_model(store.config())  # never evaluated: only asked for heads and widths
    inner_path = parent_of(manifest.embedding.module)
    inner = module_at(model, inner_path)
    has_head = plan.last_layer == manifest.num_layers - 1
    parts = [layer_part(layer) for layer in range(plan.first_layer, plan.last_layer + 1)]
    arena = ResidentArena(store, parts + ([TAIL_PART] if has_head else []))
    describer = Describer(arena, inner, inner_path, plan.kv)
    guesser = make_guesser(guess, plan.guess_width, streaming.following, has_scores=True)
    layers = [_layer(describer, inner, entry, streaming, guesser) for entry in streaming.entries]
    native = kernels.load(threads)
    assert native is not None, "the path was chosen because there are kernels"
    buffers = _expert_buffers(streaming.entries, manifest.hidden_size, plan)
    maths = {e.layer: KernelExpertMath(native, streaming.pool, e, buffers) for e in streaming.entries}
    streamer = streaming.streamer(maths, plan.guess_width, recorder)
    head = head_path(model, manifest.embedding.module) or manifest.embedding.module
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


def _ends(describer: Describer, inner: Any, head: str, store: ModelStore, plan: Plan) -> KernelEnds:
    entry, eps = store.manifest.embedding, float(inner.norm.eps)
    embed = _embed(store) if plan.first_layer == 0 else None
    if plan.last_layer < store.manifest.num_layers - 1:
        return KernelEnds(embed, None, eps, None)
    norm = describer.vector(f"{parent_of(entry.module)}.norm.weight")
    return KernelEnds(embed, norm, eps, describer.matrix(head))


def _embed(store: ModelStore) -> Callable[[np.ndarray], np.ndarray]:
    entry = store.manifest.embedding
    table = StreamedEmbedding(entry, store.open_records(entry.file), mx.float32)
    return lambda ids: np.array(table(mx.array(ids.astype(np.int32))))


def _rope_base(inner: Any) -> float:
    bases = {float(layer.self_attn.rope.base) for layer in inner.layers if hasattr(layer, "self_attn")}
    assert len(bases) <= 1, "one rotary base a model"
    return bases.pop() if bases else 1.0


def _expert_buffers(entries: tuple[ExpertLayer, ...], width: int, plan: Plan) -> ExpertBuffers:
    hidden = max(field.shape[0] for e in entries for field in e.record.fields if field.name == "gate_proj.weight")
    return ExpertBuffers(width, hidden, plan.top_k, plan.chunk_tokens)

"""Putting a band together for MLX: mlx-lm's model with its expert modules replaced and its resident weights loaded.

Owns the construction only. Order matters: modules are replaced before anything is evaluated, so that no random
initial weight is ever materialised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from .. import kernels
from ..embedding import StreamedEmbedding
from ..experts import Recorder
from ..families import FAMILIES, Family
from ..guess import Guesser, GuessName, make_guesser
from ..head_stream import HeadStream
from ..plan_types import Plan
from ..skeleton import build_model, expert_modules, layer_of, module_at, parent_of, replace_module
from ..store import ModelStore
from ..streaming import Streaming
from ..wired import WiredLimit, gpu
from .mlx_experts import StreamedExperts
from .mlx_layers import LayerByLayer, MlxLayers, RoutedState, Tap, WholeModel
from .mlx_load import expert_maths, load_band
from .mlx_state import empty_state
from .mlx_together import Meeting

Router = Callable[[], mx.array]


def build_mlx_layers(
    store: ModelStore,
    plan: Plan,
    streaming: Streaming,
    guess: GuessName | Guesser,
    threads: int,
    recorder: Recorder | None,
    head_stream: HeadStream | None,
) -> MlxLayers:
    """The band of `plan`, loaded. Raises ModelFolderError, the store's errors and PlatformUnsupported."""
    manifest, dtype = store.manifest, getattr(mx, plan.compute_dtype)
    native = kernels.load(threads) if plan.backend == "kernel-linears" else None
    model = build_model(store.config())
    state = empty_state(model, plan)
    inner = module_at(model, parent_of(manifest.embedding.module))
    activations = {layer_of(path): module.activation for path, module in expert_modules(model).items()}
    for entry in manifest.experts:
        replace_module(model, entry.module, nn.Module())
    head = load_band(model, inner, store, plan, head_stream, native)
    if plan.first_layer == 0:
        file = store.open_records(manifest.embedding.file)
        replace_module(model, manifest.embedding.module, StreamedEmbedding(manifest.embedding, file, dtype))
    family = FAMILIES.get(manifest.family)
    guesser = make_guesser(guess, plan.guess_width, streaming.following, has_scores=family is not None)
    routers = _routers(inner, streaming, family) if family and guesser.wants_scores else {}
    maths = expert_maths(streaming, plan, manifest.hidden_size, activations, native)
    streamer = streaming.streamer(maths, plan.guess_width, recorder)
    meeting = Meeting(streamer, guesser)
    for entry in streaming.entries:
        experts = StreamedExperts(entry.layer, streamer, guesser, routers.get(entry.layer), meeting)
        replace_module(model, entry.module, experts)
    middle = LayerByLayer(inner, family, plan.first_layer, plan.last_layer, meeting) if family else WholeModel(inner)
    return MlxLayers(middle, head, plan, state, native, WiredLimit(plan, gpu()))


def _routers(inner: Any, streaming: Streaming, family: Family) -> dict[int, Router]:
    """For each expert layer but the last: the next one's selection scores on this one's state, lazily."""
    shown = RoutedState()
    blocks = {entry.layer: parent_of(entry.module).rpartition(".")[2] for entry in streaming.entries}
    routers = {}
    for layer, after in streaming.following.items():
        target = inner.layers[after]
        norm, router = getattr(target, family.norm), getattr(getattr(target, blocks[after]), family.router)
        routers[layer] = _router(shown, norm, router, family)
    for layer in streaming.following:
        setattr(inner.layers[layer], family.norm, Tap(getattr(inner.layers[layer], family.norm), shown))
    return routers


def _router(shown: RoutedState, norm: Any, router: Any, family: Family) -> Router:
    def scores() -> mx.array:
        assert shown.hidden is not None, "a layer's norm runs before its experts"
        return family.scores(router, norm(shown.hidden))

    return scores

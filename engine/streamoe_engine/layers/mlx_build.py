"""Putting a band together for MLX: mlx-lm's model with its expert modules replaced and its resident weights loaded.

Owns the construction only. Order matters: modules are replaced before anything is evaluated, so that no random
initial weight is ever materialised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from ..embedding import StreamedEmbedding
from ..experts import Recorder
from ..families import FAMILIES, Family
from ..guess import Guesser, GuessName, make_guesser
from ..manifest import TAIL_PART, layer_part
from ..plan_types import Plan
from ..skeleton import build_model, expert_modules, head_path, layer_of, module_at, parent_of, replace_module
from ..store import ModelStore
from ..streaming import Streaming
from .mlx_experts import StreamedExperts
from .mlx_head import MlxHead
from .mlx_layers import LayerByLayer, MlxLayers, RoutedState, Tap, WholeModel
from .mlx_math import MlxExpertMath
from .mlx_resident import fill_modules
from .mlx_state import empty_state

Router = Callable[[], mx.array]


def build_mlx_layers(
    store: ModelStore, plan: Plan, streaming: Streaming, guess: GuessName | Guesser, recorder: Recorder | None
) -> MlxLayers:
    """The band of `plan`, loaded. Raises ModelFolderError and the store's errors."""
    manifest, dtype = store.manifest, getattr(mx, plan.compute_dtype)
    model = build_model(store.config())
    state = empty_state(model, plan)
    inner = module_at(model, parent_of(manifest.embedding.module))
    activations = {layer_of(path): module.activation for path, module in expert_modules(model).items()}
    for entry in manifest.experts:
        replace_module(model, entry.module, nn.Module())
    head = _load(model, inner, store, plan, dtype)
    if plan.first_layer == 0:
        file = store.open_records(manifest.embedding.file)
        replace_module(model, manifest.embedding.module, StreamedEmbedding(manifest.embedding, file, dtype))
    family = FAMILIES.get(manifest.family)
    guesser = make_guesser(guess, plan.guess_width, streaming.following, has_scores=family is not None)
    routers = _routers(inner, streaming, family) if family and guesser.wants_scores else {}
    maths = {e.layer: MlxExpertMath(streaming.pool, e, activations[e.layer]) for e in streaming.entries}
    streamer = streaming.streamer(maths, plan.guess_width, recorder)
    for entry in streaming.entries:
        experts = StreamedExperts(entry.layer, streamer, guesser, routers.get(entry.layer))
        replace_module(model, entry.module, experts)
    middle = LayerByLayer(inner, family, plan.first_layer, plan.last_layer) if family else WholeModel(inner)
    return MlxLayers(middle, head, dtype, state)


def _load(model: nn.Module, inner: Any, store: ModelStore, plan: Plan, dtype: mx.Dtype) -> MlxHead | None:
    """Fill the band's modules, empty the others; returns the head in the last band."""
    manifest, embedding = store.manifest, store.manifest.embedding.module
    for number in range(len(inner.layers)):
        if not plan.first_layer <= number <= plan.last_layer:
            inner.layers[number] = nn.Module()
    parts = [layer_part(layer) for layer in range(plan.first_layer, plan.last_layer + 1)]
    head = head_path(model, embedding) or embedding
    if plan.last_layer == manifest.num_layers - 1:
        parts.append(TAIL_PART)
    else:
        inner.norm = nn.Module()
        if head != embedding:
            replace_module(model, head, nn.Module())
    if TAIL_PART not in parts or head != embedding:
        replace_module(model, embedding, nn.Module())
    fill_modules(model, store, parts, dtype)
    return MlxHead(module_at(model, head)) if TAIL_PART in parts else None


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

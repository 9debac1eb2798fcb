"""Putting a band together: mlx-lm's model with its expert modules replaced and its resident weights loaded.

Owns the construction only; afterwards the parts know each other and this module is done. Order matters: modules
are replaced before anything is evaluated, so that no random initial weight is ever materialised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from .caches import cache_maker
from .embedding import StreamedEmbedding
from .errors import ModelFolderError
from .expert_math import ExpertMath
from .experts import ExpertStreamer, Recorder, StreamedExperts, StreamedLayer
from .families import FAMILIES, Family
from .guess import CrossLayer, Guesser, GuessName, NoGuess, PreviousToken
from .head import Head
from .layers import LayerByLayer, Layers, RoutedState, Tap, WholeModel
from .manifest import TAIL_PART, ExpertLayer, Field, Manifest, layer_part
from .plan_types import Plan
from .policies import PolicyName, make_policy
from .pool import SlotPool
from .quantization import stored_quantization
from .reader import Reader
from .record_flow import LayerRecords, RecordFlow
from .skeleton import build_model, expert_modules, layer_of, module_at, parent_of, replace_module
from .store import ModelStore
from .telemetry import Counters
from .tier import Tier


@dataclass(frozen=True, slots=True)
class Assembled:
    """A band's working parts. head is None in a band that is not the last."""

    layers: Layers
    head: Head | None
    reader: Reader
    counters: dict[int, Counters]
    make_caches: Callable[[], list[Any]]


def assemble(
    store: ModelStore,
    plan: Plan,
    policy_name: PolicyName,
    guess: GuessName | Guesser,
    recorder: Recorder | None = None,
) -> Assembled:
    """Build, load and connect the band of `plan`.

    Raises the store's errors, and ModelFolderError where the folder lacks a weight that the architecture has.
    """
    manifest, dtype = store.manifest, getattr(mx, plan.compute_dtype)
    model = build_model(store.config())
    make_caches = cache_maker(model, plan)
    inner = module_at(model, parent_of(manifest.embedding.module))
    activations = {layer_of(path): module.activation for path, module in expert_modules(model).items()}
    entries = [entry for entry in manifest.experts if plan.first_layer <= entry.layer <= plan.last_layer]
    for entry in manifest.experts:
        replace_module(model, entry.module, nn.Module())
    _drop_other_layers(inner, plan)
    head_module = _load_resident(model, store, plan, dtype)
    if plan.first_layer == 0:
        file = store.open_records(manifest.embedding.file)
        replace_module(model, manifest.embedding.module, StreamedEmbedding(manifest.embedding, file, dtype))
    family = FAMILIES.get(manifest.family)
    guesser = _guesser(guess, inner, entries, family, plan)
    pool = SlotPool(plan.slots, plan.slot_bytes)
    policy = make_policy(policy_name, len(manifest.states) * _keys_a_layer(manifest))
    reader = Reader()
    streamed = _streamed_layers(store, entries, pool, activations, _keys_a_layer(manifest))
    tier = Tier(plan.slots, plan.landing_slots, policy)
    flow = RecordFlow(pool, tier, reader)
    streamer = ExpertStreamer(streamed, flow, policy, guesser, plan.guess_width, recorder)
    for entry in entries:
        replace_module(model, entry.module, StreamedExperts(entry.layer, streamer))
    layers: Layers = LayerByLayer(inner, family, plan.first_layer, plan.last_layer) if family else WholeModel(inner)
    counters = {number: layer.records.counters for number, layer in streamed.items()}
    return Assembled(layers, Head(head_module) if head_module else None, reader, counters, make_caches)


def _drop_other_layers(inner: Any, plan: Plan) -> None:
    for number in range(len(inner.layers)):
        if not plan.first_layer <= number <= plan.last_layer:
            inner.layers[number] = nn.Module()


def _load_resident(model: nn.Module, store: ModelStore, plan: Plan, dtype: mx.Dtype) -> Any:
    """Fill the modules of the band; returns the head's module in the last band, else None."""
    manifest, embedding = store.manifest, store.manifest.embedding.module
    is_last = plan.last_layer == manifest.num_layers - 1
    if not is_last:
        _replace_if_there(model, embedding, "lm_head")
        module_at(model, parent_of(embedding)).norm = nn.Module()
    parts = [layer_part(layer) for layer in range(plan.first_layer, plan.last_layer + 1)]
    parts += [TAIL_PART] if is_last else []
    fields = {field.name: field for part in parts for field in manifest.resident[part]}
    is_tied = is_last and f"{embedding}.weight" in fields
    if not is_tied:
        replace_module(model, embedding, nn.Module())
    _quantize_like(model, fields)
    wanted = {name for name, _ in tree_flatten(model.parameters())}
    if missing := sorted(wanted - fields.keys()):
        raise ModelFolderError(
            f"{store.folder} lacks {len(missing)} weights of {manifest.family}, the first is {missing[0]}",
            "convert the checkpoint again",
        )
    for part in parts:
        tensors = _in_compute_dtype(store.load_resident(part), dtype)
        model.load_weights([(name, array) for name, array in tensors.items() if name in wanted], strict=False)
        mx.eval([array for array in tensors.values()])
    if not is_last:
        return None
    head = module_at(model, embedding) if is_tied else _lm_head(model, embedding)
    if is_tied:
        replace_module(model, embedding, nn.Module())
    return head


def _lm_head(model: nn.Module, embedding_path: str) -> Any:
    holders = (parent_of(parent_of(embedding_path)), "")
    return next(module_at(model, holder).lm_head for holder in holders if hasattr(module_at(model, holder), "lm_head"))


def _replace_if_there(model: nn.Module, embedding_path: str, name: str) -> None:
    for holder in {parent_of(parent_of(embedding_path)), ""}:
        if hasattr(module_at(model, holder), name):
            setattr(module_at(model, holder), name, nn.Module())


def _quantize_like(model: nn.Module, fields: dict[str, Field]) -> None:
    """Give a module its quantised form wherever the folder has scales for it, in the bits the tensors show."""

    def predicate(path: str, module: Any) -> bool | dict[str, Any]:
        scales = fields.get(f"{path}.scales")
        if scales is None or not hasattr(module, "to_quantized"):
            return False
        return asdict(stored_quantization(module.weight.shape[-1], fields[f"{path}.weight"], scales))

    nn.quantize(model, class_predicate=predicate)


def _in_compute_dtype(tensors: dict[str, mx.array], dtype: mx.Dtype) -> dict[str, mx.array]:
    """Quantised matrices and their scales as stored; other real numbers in float32 where that is computed in."""
    if dtype != mx.float32:
        return tensors
    quantised = {parent_of(name) for name in tensors if name.endswith(".scales")}
    narrow = (mx.bfloat16, mx.float16)
    return {
        name: array.astype(dtype) if array.dtype in narrow and parent_of(name) not in quantised else array
        for name, array in tensors.items()
    }


def _keys_a_layer(manifest: Manifest) -> int:
    return max(entry.num_experts for entry in manifest.experts)


def _streamed_layers(
    store: ModelStore,
    entries: Iterable[ExpertLayer],
    pool: SlotPool,
    activations: dict[int, Any],
    keys_a_layer: int,
) -> dict[int, StreamedLayer]:
    entries = list(entries)
    following = {entry.layer: after.layer for entry, after in pairwise(entries)}
    streamed = {}
    for entry in entries:
        number = entry.layer
        records = LayerRecords(entry, store.open_records(entry.file), number * keys_a_layer, Counters(number))
        math = ExpertMath(pool, entry, activations[number])
        streamed[number] = StreamedLayer(number, records, math, following.get(number))
    return streamed


def _guesser(
    guess: GuessName | Guesser, inner: Any, entries: list[ExpertLayer], family: Family | None, plan: Plan
) -> Guesser:
    following = {entry.layer: after.layer for entry, after in pairwise(entries)}
    if not isinstance(guess, str):
        return guess
    if guess == "none" or plan.guess_width == 0:
        return NoGuess()
    if guess == "previous-token" or family is None:
        return PreviousToken(following)
    return _cross_layer(inner, entries, family, following, plan.guess_width)


def _cross_layer(
    inner: Any, entries: list[ExpertLayer], family: Family, following: dict[int, int], width: int
) -> CrossLayer:
    shown = RoutedState()
    routers: dict[int, Callable[[mx.array], mx.array]] = {}
    blocks = {entry.layer: parent_of(entry.module).rpartition(".")[2] for entry in entries}
    for layer, after in following.items():
        target = inner.layers[after]
        norm, router = getattr(target, family.norm), getattr(getattr(target, blocks[after]), family.router)
        routers[layer] = _router(norm, router, family)
    for layer in following:
        setattr(inner.layers[layer], family.norm, Tap(getattr(inner.layers[layer], family.norm), shown))

    def hidden() -> mx.array:
        assert shown.hidden is not None, "a layer's norm runs before its experts"
        return shown.hidden

    return CrossLayer(hidden, routers, width)


def _router(norm: Any, router: Any, family: Family) -> Callable[[mx.array], mx.array]:
    return lambda hidden: family.scores(router, norm(hidden))

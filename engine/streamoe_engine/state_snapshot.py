"""A sequence's state at one position, addressed by layer: what a band saves, and any other band of the model loads.

Owns the value, cutting it and joining it by layers, and the check against a manifest. Refuses to know how a state is
computed, and how its bytes travel (snapshot_stream). Pure NumPy.

A layer's arrays, by its kind in the manifest (LayerState):
    kv          keys, values (heads, position, dims) in the KV format; bfloat16 as uint16
    window      keys, values (heads, tokens kept, dims) in the compute type, in the order they lie in the ring;
                place (2,) int64: tokens run, and the row that was written last, plus 1
    recurrent   recurrent_0, recurrent_1, ... of the manifest's shapes, float32 or the compute type
At position 0 a layer has no arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from .errors import SnapshotMismatch
from .kv.formats import KvFormat
from .manifest import LayerState, Manifest
from .plan_scratch import Backend, ComputeDtype

Arrays = dict[str, np.ndarray]
_KV_DTYPES: dict[KvFormat, str] = {"f32": "float32", "f16": "float16", "bf16": "uint16"}
_COMPUTE_DTYPES: dict[ComputeDtype, str] = {"float32": "float32", "bfloat16": "uint16"}
_REPLAY = "run the tokens again instead"


def recurrent_name(number: int) -> str:
    """Name of a recurrent layer's array `number`, counted as in the manifest."""
    return f"recurrent_{number}"


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """Copies of a state's arrays after `position` tokens, by layer; the layers need not be neighbours.

    family, fingerprint: of the model folder. kv, compute_dtype, backend: a state means something only to a band that
    has the same, bit for bit.
    """

    position: int
    layers: dict[int, Arrays]
    kv: KvFormat
    compute_dtype: ComputeDtype
    backend: Backend
    family: str
    fingerprint: str

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays: what holding it costs, and whoever holds it has to have planned."""
        return sum(array.nbytes for arrays in self.layers.values() for array in arrays.values())

    def cut(self, first: int, last: int) -> StateSnapshot:
        """Layers first..last of it, sharing the arrays. Raises SnapshotMismatch where one is missing."""
        missing = [layer for layer in range(first, last + 1) if layer not in self.layers]
        if missing:
            raise SnapshotMismatch(
                f"the snapshot lacks {len(missing)} of the layers {first}-{last}, the first is {missing[0]}", _REPLAY
            )
        return replace(self, layers={layer: self.layers[layer] for layer in range(first, last + 1)})


def merged(snapshots: Iterable[StateSnapshot]) -> StateSnapshot:
    """One snapshot of all their layers, sharing the arrays.

    Raises SnapshotMismatch when they differ in anything but layers, or two have the same layer.
    """
    parts = list(snapshots)
    assert parts, "there is something to join"
    layers: dict[int, Arrays] = {}
    for part in parts:
        _check_same(parts[0], part)
        if twice := layers.keys() & part.layers.keys():
            raise SnapshotMismatch(f"layer {min(twice)} is in two of the snapshots", "join snapshots of other bands")
        layers |= part.layers
    return replace(parts[0], layers=dict(sorted(layers.items())))


def _check_same(first: StateSnapshot, other: StateSnapshot) -> None:
    for name in ("position", *_IDENTITY):
        if getattr(first, name) != getattr(other, name):
            raise SnapshotMismatch(
                f"snapshots of {name} {getattr(first, name)} and {getattr(other, name)} do not belong together",
                "take the snapshots of all bands at one position of one sequence",
            )


_IDENTITY = ("family", "fingerprint", "kv", "compute_dtype", "backend")


def check_identity(snapshot: StateSnapshot, band: StateSnapshot) -> None:
    """Whether `snapshot` is of the kind of `band`, an empty one. Raises SnapshotMismatch with the first difference."""
    for name in _IDENTITY:
        if getattr(snapshot, name) != getattr(band, name):
            raise SnapshotMismatch(
                f"the snapshot's {name} is {getattr(snapshot, name)}, this band's is {getattr(band, name)}", _REPLAY
            )


def check_arrays(snapshot: StateSnapshot, manifest: Manifest) -> None:
    """Whether every layer has the arrays that the manifest's states call for, of the right shapes and types.

    Raises SnapshotMismatch naming the layer. It makes a snapshot from another machine safe to load.
    """
    if snapshot.position < 0:
        raise SnapshotMismatch(f"a snapshot at position {snapshot.position} cannot be", _REPLAY)
    for layer, arrays in snapshot.layers.items():
        if not 0 <= layer < manifest.num_layers:
            raise SnapshotMismatch(f"the snapshot has layer {layer}, the model 0-{manifest.num_layers - 1}", _REPLAY)
        if reason := _array_reason(manifest.states[layer], arrays, snapshot):
            raise SnapshotMismatch(f"the snapshot's layer {layer}: {reason}", _REPLAY)


def _array_reason(state: LayerState, arrays: Arrays, snapshot: StateSnapshot) -> str:
    """Why these arrays are not a state of this kind, or ""."""
    if snapshot.position == 0:
        return "arrays before the first token" if arrays else ""
    names = {
        "kv": {"keys", "values"},
        "window": {"keys", "values", "place"},
        "recurrent": {recurrent_name(number) for number in range(len(state.arrays))},
    }[state.kind]
    if arrays.keys() != names:
        return f"has {', '.join(sorted(arrays)) or 'nothing'}, wanted {', '.join(sorted(names))}"
    compute = _COMPUTE_DTYPES[snapshot.compute_dtype]
    if state.kind == "recurrent":
        for number, shape in enumerate(state.arrays):
            array = arrays[recurrent_name(number)]
            if array.shape != shape or array.dtype.name not in ("float32", compute):
                return f"{recurrent_name(number)} is {array.dtype} {array.shape}, wanted {shape}"
        return ""
    dtype = compute if state.kind == "window" else _KV_DTYPES[snapshot.kv]
    return _pair_reason(state, arrays, dtype) or _length_reason(state, arrays, snapshot.position)


def _pair_reason(state: LayerState, arrays: Arrays, dtype: str) -> str:
    for name, dims in (("keys", state.key_dims), ("values", state.value_dims)):
        array = arrays[name]
        if array.dtype.name != dtype or array.ndim != 3 or array.shape[0] * array.shape[2] != dims:
            return f"{name} are {array.dtype} {array.shape}, wanted {dtype} of {dims} elements a token"
    same = arrays["keys"].shape[:2] == arrays["values"].shape[:2]
    return "" if same else f"keys {arrays['keys'].shape} and values {arrays['values'].shape} differ"


def _length_reason(state: LayerState, arrays: Arrays, position: int) -> str:
    tokens = arrays["keys"].shape[1]
    if state.kind == "kv":
        return "" if tokens == position else f"has {tokens} tokens, the snapshot {position}"
    place = arrays["place"]
    if place.dtype != np.int64 or place.shape != (2,):
        return f"place is {place.dtype} {place.shape}, wanted int64 (2,)"
    run, row = place.tolist()
    if run != position or not 0 < row <= tokens or tokens < min(position, state.window) or tokens > position:
        return f"{tokens} tokens with place {run}, {row} are no window of {state.window} at {position}"
    return ""

"""The structs of streamoe_layers.h as ctypes sees them, field by field in their order, and the calls' signatures."""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np

from .native import CExpert, CMatrix, Matrix

_pointer, _i32, _i64, _f32 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_float

# Code (ST_F32, ST_BF16, ST_F16) and NumPy type of a cache's elements; NumPy has no bfloat16.
CACHE_TYPES: Final = {"F32": (0, np.float32), "BF16": (1, np.uint16), "F16": (2, np.float16)}


class CRouting(ctypes.Structure):
    """st_routing."""

    _fields_ = (("norm", _pointer), ("next_norm", _pointer), ("router", CMatrix), ("next_router", CMatrix))


class CSharedExpert(ctypes.Structure):
    """st_shared_expert."""

    _fields_ = (("expert", CExpert), ("scale", CMatrix))


class CLayerIO(ctypes.Structure):
    """st_layer_io."""

    _fields_ = (
        ("tokens", _i64),
        ("hidden", _pointer),
        ("after", _pointer),
        ("expert_input", _pointer),
        ("router_logits", _pointer),
        ("guess_logits", _pointer),
        ("scratch", _pointer),
    )


class CGdnLayer(ctypes.Structure):
    """st_gdn_layer."""

    _fields_ = (
        ("width", _i64),
        ("input_norm", _pointer),
        ("routing", CRouting),
        ("norm_eps", _f32),
        ("interleaved", _i32),
        *((name, _i64) for name in ("key_heads", "value_heads", "key_dim", "value_dim")),
        *((name, CMatrix) for name in ("qkv", "z", "b", "a", "out")),
        *((name, _pointer) for name in ("conv_weight", "norm_weight", "a_log", "dt_bias")),
    )


class CAttentionLayer(ctypes.Structure):
    """st_attention_layer."""

    _fields_ = (
        ("width", _i64),
        ("input_norm", _pointer),
        ("routing", CRouting),
        ("norm_eps", _f32),
        *((name, _i32) for name in ("gated", "qk_norm", "cache_type")),
        *((name, _i64) for name in ("heads", "kv_heads", "dim", "rope_half")),
        ("scale", _f32),
        ("reserved", _i32),
        *((name, CMatrix) for name in ("q", "k", "v", "out")),
        ("q_norm", _pointer),
        ("k_norm", _pointer),
    )


class CSequence(ctypes.Structure):
    """st_sequence."""

    _fields_ = (("keys", _pointer), ("values", _pointer), ("context", _i64), ("position", _i64), ("rope", _pointer))


def c_matrix(matrix: Matrix | None) -> CMatrix:
    """The description in C; of none, a matrix without rows."""
    return CMatrix() if matrix is None else matrix.c


def declare_layers(lib: ctypes.CDLL) -> ctypes.CDLL:
    """Gives the layer calls their types. Checks that the mirrored structs have the sizes C gives them."""
    lib.st_layer_struct_bytes.argtypes, lib.st_layer_struct_bytes.restype = (ctypes.c_int,), _i64
    for kind, mirror in enumerate((CLayerIO, CGdnLayer, CAttentionLayer, CSequence, CSharedExpert)):
        assert lib.st_layer_struct_bytes(kind) == ctypes.sizeof(mirror), mirror
    gdn, attention, shared = map(ctypes.POINTER, (CGdnLayer, CAttentionLayer, CSharedExpert))
    io, sequence = ctypes.POINTER(CLayerIO), ctypes.POINTER(CSequence)
    lib.st_gdn_layer_scratch.argtypes, lib.st_gdn_layer_scratch.restype = (gdn, _i64), _i64
    lib.st_gdn_layer_run.argtypes, lib.st_gdn_layer_run.restype = (_pointer, gdn, io, _pointer, _pointer), None
    lib.st_attention_layer_scratch.argtypes = (attention, _i64, _i64)
    lib.st_attention_layer_scratch.restype = _i64
    lib.st_attention_layer_run.argtypes = (_pointer, attention, io, sequence)
    lib.st_attention_layer_run.restype = None
    lib.st_shared_expert_scratch.argtypes, lib.st_shared_expert_scratch.restype = (shared, _i64), _i64
    lib.st_shared_expert_run.argtypes = (_pointer, shared, _i64, _pointer, _pointer, _pointer)
    lib.st_shared_expert_run.restype = None
    lib.st_route.argtypes = (_pointer, _pointer, _i64, _i64, _i64, _i64, ctypes.c_int, _pointer, _pointer)
    lib.st_route.restype = None
    lib.st_expert_token_shared.argtypes = (*[_pointer] * 4, _i64, *[_pointer] * 4, _i64, _pointer)
    lib.st_expert_token_shared.restype = None
    lib.st_combine.argtypes, lib.st_combine.restype = (*[_pointer] * 3, _i64, _i64, _pointer, _pointer), None
    lib.st_rms_norm.argtypes = (_pointer, _pointer, _pointer, _f32, _i64, _i64, _pointer)
    lib.st_rms_norm.restype = None
    lib.st_rope_table.argtypes = (_pointer, _i64, _i64, ctypes.c_double, _pointer)
    lib.st_rope_table.restype = None
    return lib

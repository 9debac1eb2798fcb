"""Manifests without files, for planning tests: the true Qwen3.6-35B-A3B shape, and variations of it."""

from __future__ import annotations

from math import prod

from streamoe_engine.manifest import (
    DTYPE_BYTES,
    EMBEDDING_FILE,
    TAIL_PART,
    Embedding,
    ExpertLayer,
    Field,
    LayerState,
    Manifest,
    Quantization,
    RecordLayout,
    expert_file,
    layer_part,
)

HIDDEN, VOCAB, EXPERT, LAYERS = 2048, 248320, 512, 40


def packed(
    name: str, rows: int, columns: int, bits: int = 4, group: int = 64
) -> list[tuple[str, str, tuple[int, ...]]]:
    """A quantised matrix's three tensors: (name, dtype, shape)."""
    groups = (rows, columns // group)
    return [
        (f"{name}.weight", "U32", (rows, columns * bits // 32)),
        (f"{name}.scales", "BF16", groups),
        (f"{name}.biases", "BF16", groups),
    ]


def laid_out(tensors: list[tuple[str, str, tuple[int, ...]]]) -> tuple[Field, ...]:
    """Fields one after the other."""
    fields, offset = [], 0
    for name, dtype, shape in tensors:
        fields.append(Field(name, dtype, shape, offset))
        offset += prod(shape) * DTYPE_BYTES[dtype]
    return tuple(fields)


def qwen36_manifest() -> Manifest:
    """Qwen3.6-35B-A3B in 4 bits: 40 layers, every fourth with full attention, 256 experts, 8 a token."""
    record = RecordLayout(
        laid_out(
            packed("gate_proj", EXPERT, HIDDEN)
            + packed("up_proj", EXPERT, HIDDEN)
            + packed("down_proj", HIDDEN, EXPERT)
        ),
        1_769_472,
    )
    spec = {name: Quantization(64, 4) for name in ("gate_proj", "up_proj", "down_proj")}
    root = "language_model.model.layers"
    experts = tuple(
        ExpertLayer(n, f"{root}.{n}.mlp.switch_mlp", expert_file(n), 256, 8, record, spec) for n in range(LAYERS)
    )
    row = laid_out([("weight", "U32", (256,)), ("scales", "BF16", (32,)), ("biases", "BF16", (32,))])
    embedding = Embedding(
        "language_model.model.embed_tokens", EMBEDDING_FILE, VOCAB, RecordLayout(row, 1152), Quantization(64, 4)
    )
    resident = {layer_part(n): laid_out(_layer(f"{root}.{n}", is_full(n))) for n in range(LAYERS)}
    resident[TAIL_PART] = laid_out(
        [("language_model.model.norm.weight", "BF16", (HIDDEN,)), *packed("language_model.lm_head", VOCAB, HIDDEN)]
    )
    states = tuple(
        LayerState("kv", 512, 512) if is_full(n) else LayerState("recurrent", arrays=((3, 8192), (32, 128, 128)))
        for n in range(LAYERS)
    )
    return Manifest("qwen3_5_moe", LAYERS, HIDDEN, VOCAB, 16, 262144, experts, embedding, resident, states, {})


def is_full(layer: int) -> bool:
    return (layer + 1) % 4 == 0


def _layer(path: str, has_attention: bool) -> list[tuple[str, str, tuple[int, ...]]]:
    tensors = [(f"{path}.{name}.weight", "BF16", (HIDDEN,)) for name in ("input_layernorm", "post_attention_layernorm")]
    tensors += packed(f"{path}.mlp.gate", 256, HIDDEN, bits=8) + packed(
        f"{path}.mlp.shared_expert_gate", 1, HIDDEN, bits=8
    )
    for name, rows, columns in (("gate", EXPERT, HIDDEN), ("up", EXPERT, HIDDEN), ("down", HIDDEN, EXPERT)):
        tensors += packed(f"{path}.mlp.shared_expert.{name}_proj", rows, columns)
    mixers = {
        True: (
            ("self_attn.q_proj", 8192, HIDDEN),
            ("self_attn.k_proj", 512, HIDDEN),
            ("self_attn.v_proj", 512, HIDDEN),
            ("self_attn.o_proj", HIDDEN, 4096),
        ),
        False: (
            ("linear_attn.in_proj_qkv", 8192, HIDDEN),
            ("linear_attn.in_proj_z", 4096, HIDDEN),
            ("linear_attn.in_proj_b", 32, HIDDEN),
            ("linear_attn.in_proj_a", 32, HIDDEN),
            ("linear_attn.out_proj", HIDDEN, 4096),
        ),
    }
    for name, rows, columns in mixers[has_attention]:
        tensors += packed(f"{path}.{name}", rows, columns)
    if not has_attention:
        tensors += [
            (f"{path}.linear_attn.conv1d.weight", "BF16", (8192, 4, 1)),
            (f"{path}.linear_attn.A_log", "F32", (32,)),
        ]
    return tensors

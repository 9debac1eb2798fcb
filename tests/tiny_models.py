"""Tiny configurations of the Mixture-of-Experts families under test, and random checkpoints of them.

All matrix widths are multiples of 64, so that each quantises to 4 bits in groups of 64.
"""

from __future__ import annotations

from typing import Any

_COMMON: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
_QWEN_MOE: dict[str, Any] = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "head_dim": 32,
}
_LINEAR: dict[str, Any] = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
    "partial_rotary_factor": 0.5,
}
_MLA: dict[str, Any] = {
    "moe_intermediate_size": 64,
    "n_shared_experts": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "routed_scaling_factor": 1.5,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
    "kv_lora_rank": 64,
    "q_lora_rank": 64,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 64,
    "v_head_dim": 64,
    "rope_scaling": None,
}

TINY_CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3_5_moe": {
        "model_type": "qwen3_5_moe",
        "tie_word_embeddings": False,
        "text_config": {
            **_COMMON,
            **_QWEN_MOE,
            **_LINEAR,
            "model_type": "qwen3_5_moe_text",
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [2, 3, 3],
                "mrope_interleaved": True,
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
            },
        },
    },
    "qwen3_next": {"model_type": "qwen3_next", **_COMMON, **_QWEN_MOE, **_LINEAR},
    "qwen3_moe": {"model_type": "qwen3_moe", **_COMMON, **_QWEN_MOE},
    "olmoe": {
        "model_type": "olmoe",
        **_COMMON,
        "intermediate_size": 64,
        "num_experts": 8,
        "num_experts_per_tok": 2,
    },
    "mixtral": {"model_type": "mixtral", **_COMMON, "num_local_experts": 8, "num_experts_per_tok": 2},
    "deepseek_v3": {"model_type": "deepseek_v3", **_COMMON, **_MLA},
    "glm4_moe": {
        "model_type": "glm4_moe",
        **_COMMON,
        "moe_intermediate_size": 64,
        "n_shared_experts": 1,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
        "norm_topk_prob": True,
        "first_k_dense_replace": 1,
        "head_dim": 32,
        "use_qk_norm": True,
        "attention_bias": True,
        "partial_rotary_factor": 0.5,
        "rope_scaling": None,
    },
    "gpt_oss": {
        "model_type": "gpt_oss",
        **_COMMON,
        "intermediate_size": 64,
        "head_dim": 32,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "sliding_window": 16,
        "rope_theta": 10000,
        "rope_scaling": None,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
}

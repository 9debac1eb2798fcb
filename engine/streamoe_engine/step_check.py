"""Whether a step can be run at all: asked before anything is computed, so that a refusal costs no state. Pure."""

from __future__ import annotations

import numpy as np

from .errors import ContextFull, UsageError
from .layers.interface import Want
from .manifest import Manifest
from .plan_types import Plan


def check_step(plan: Plan, manifest: Manifest, position: int, inputs: np.ndarray, want: Want) -> None:
    """inputs and want as of Band.run, for a sequence at `position`. Raises UsageError and ContextFull."""
    tokens = len(inputs)
    if not 1 <= tokens <= plan.chunk_tokens:
        raise UsageError(
            f"{tokens} tokens at once, the plan has room for 1 to {plan.chunk_tokens}",
            f"run the prompt in chunks, or open with --chunk {max(tokens, 1)}",
        )
    if position + tokens > plan.ctx_tokens:
        raise ContextFull(position + tokens, plan.ctx_tokens)
    if plan.first_layer > 0 and inputs.shape[1:] != (manifest.hidden_size,):
        raise UsageError(
            f"inputs of shape {inputs.shape} to a band that begins at layer {plan.first_layer}",
            f"give it hidden states, {manifest.hidden_size} numbers a token",
        )
    if plan.first_layer == 0 and not 0 <= inputs.min() <= inputs.max() < manifest.vocab_size:
        raise UsageError(
            f"token ids {inputs.min()} to {inputs.max()} are not within the vocabulary of {manifest.vocab_size}",
            "use the tokenizer of the same model folder",
        )
    if want in ("last_logits", "all_logits") and plan.last_layer < plan.num_layers - 1:
        raise UsageError("this band is not the last and has no head", "ask it for hidden states")

"""Whether a run may begin, and what the last band is then asked for. Pure."""

from __future__ import annotations

import numpy as np

from streamoe_engine.band import Want
from streamoe_engine.errors import ContextFull, UsageError
from streamoe_proto.messages import StepWant


def check_run(
    position: int, inputs: np.ndarray, want: Want, chunk_tokens: int, ctx_tokens: int, vocab_size: int
) -> None:
    """inputs: (tokens,) int32 after `position` others. Raises UsageError and ContextFull."""
    num_tokens = len(inputs)
    if not 1 <= num_tokens <= chunk_tokens:
        raise UsageError(f"{num_tokens} tokens at once, a frame holds 1 to {chunk_tokens}", "run fewer at once")
    if position + num_tokens > ctx_tokens:
        raise ContextFull(position + num_tokens, ctx_tokens)
    if not 0 <= inputs.min() <= inputs.max() < vocab_size:
        raise UsageError(
            f"token ids {inputs.min()} to {inputs.max()} are not within the vocabulary of {vocab_size}",
            "use the tokenizer of the same model",
        )
    if want == "all_logits":
        raise UsageError("nodes give the logits of a step's last token", "run the tokens one by one")


def asked_of_last(want: Want, words_wanted: int | None) -> tuple[StepWant, int]:
    """What the last band gives, and of how many words; words_wanted: None for every logit."""
    if want == "nothing":
        return "ack", 0
    if want == "hidden":
        return "hidden", 0
    return ("logits", 0) if words_wanted is None else ("top_k", words_wanted)

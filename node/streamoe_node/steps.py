"""One step through a band: checked, cut into chunks the plan has room for, its output as it was asked for.

Owns what a step means to a band. Refuses to know sessions, threads and the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamoe_proto.messages import Step, StepWant, TopWords

from .ports import BandPort, BandWant
from .top_words import top_words

_BAND_WANT: dict[StepWant, BandWant] = {
    "ack": "nothing",
    "hidden": "hidden",
    "top_k": "last_logits",
    "logits": "last_logits",
}


def fault_of(step: Step, band: BandPort) -> str:
    """What is wrong with a step, in a sentence, or ""."""
    if not len(step.inputs):
        return "a step has at least one token"
    if step.want in ("top_k", "logits") and not band.is_last:
        return "this band is not the last and has no head"
    if step.want == "top_k" and step.top_k < 1:
        return "top_k is at least 1"
    return _fault_of_inputs(step.inputs, band)


def _fault_of_inputs(inputs: np.ndarray, band: BandPort) -> str:
    if not band.is_first:
        if inputs.dtype == np.float32 and inputs.ndim == 2 and inputs.shape[1] == band.width:
            return ""
        return f"this band takes hidden states, (tokens, {band.width}) float32, not {inputs.dtype} {inputs.shape}"
    if inputs.dtype != np.int32 or inputs.ndim != 1:
        return f"this band takes token ids, (tokens,) int32, not {inputs.dtype} {inputs.shape}"
    lowest, highest = int(inputs.min()), int(inputs.max())
    if lowest < 0 or highest >= band.vocab_size:
        return f"token ids {lowest} to {highest} are not within the vocabulary of {band.vocab_size}"
    return ""


def output_bytes(step: Step, band: BandPort) -> int:
    """Bytes of what the step will answer with."""
    if step.want == "hidden":
        return len(step.inputs) * band.width * 4
    if step.want == "top_k":
        return 8 * min(step.top_k, band.vocab_size) + 8
    return 4 * band.vocab_size if step.want == "logits" else 0


def run_step(
    band: BandPort, state: Any, step: Step, before_layer: Callable[[int], None]
) -> np.ndarray | TopWords | None:
    """The step's output: None, (tokens, width) or (vocabulary,) float32, or TopWords. Raises as BandPort.run."""
    want, most = _BAND_WANT[step.want], band.chunk_tokens
    outputs: list[np.ndarray] = []
    for start in range(0, len(step.inputs), most):
        piece = step.inputs[start : start + most]
        is_end = start + most >= len(step.inputs)
        output = band.run(state, piece, want if is_end or want == "hidden" else "nothing", before_layer=before_layer)
        if output is not None:
            outputs.append(output)
    if not outputs:
        return None
    if step.want == "top_k":
        return top_words(outputs[-1], step.top_k)
    return outputs[0] if len(outputs) == 1 else np.concatenate(outputs)

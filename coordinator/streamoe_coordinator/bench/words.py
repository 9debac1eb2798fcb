"""The text that a measurement runs when its tokens are not forced.

Owns a prompt of any length. Refuses to know what is measured.
"""

from __future__ import annotations

from pathlib import Path

from ..sampling import Sampler, default_params, override
from ..text import TextTokenizer
from .measure import Workload

PASSAGE = (
    "A lighthouse keeper writes a letter to her brother, who builds bridges in the mountains. She tells him about the "
    "storm of last week, the ships that waited in the bay, and the engineer who came to repair the lamp. He had "
    "brought a small notebook in which he kept the length of every cable, the weight of every lens, and a list of the "
    "birds he had seen on the way. She asks her brother how he decides where a bridge should begin, what he does when "
    "the ground gives way, and whether the river is louder in spring. In return she explains how the light is turned, "
    "why it is white and not red, and how far it can be seen on a clear night. "
)


def text_workload(folder: Path, tokenizer: TextTokenizer, num_prompt_tokens: int, num_tokens: int) -> Workload:
    """A passage cut to length, then the model's likeliest tokens, its repetition penalty applied."""
    tokens = tokenizer.encode(PASSAGE, with_special_tokens=True)
    while len(tokens) < num_prompt_tokens:
        tokens += tokenizer.encode(PASSAGE, with_special_tokens=False)
    sampler = Sampler(override(default_params(folder), temperature=0))
    return Workload(tuple(tokens[:num_prompt_tokens]), num_tokens, sampler.choose)

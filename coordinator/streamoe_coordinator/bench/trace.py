"""Recording what a model routes to while it answers prompts.

Owns the prompts' file and the order of the answers. Refuses to know the trace's format and what it is good for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from streamoe_engine.band import Band
from streamoe_engine.errors import UsageError
from streamoe_engine.trace import Trace, TraceRecorder

from ..events import Finished
from ..interrupt import StopFlag
from ..sampling import SamplingParams
from ..session import ChatSession
from ..text import Text


def read_prompts(path: Path) -> list[str]:
    """The texts of a JSON file: a list of them, or an object of such lists by kind. Raises UsageError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}", "give a JSON list of texts") from error
    prompts = list(_texts(value))
    if not prompts or not all(isinstance(prompt, str) and prompt for prompt in prompts):
        raise UsageError(f"{path} holds no list of texts", 'give a JSON list such as ["Hello", "Write a poem."]')
    return prompts


def _texts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for entry in value.values():
            yield from _texts(entry)
    elif isinstance(value, list):
        yield from value
    else:
        yield value


def record(
    band: Band,
    recorder: TraceRecorder,
    text: Text,
    params: SamplingParams,
    prompts: list[str],
    tell: Callable[[str], None],
) -> Trace:
    """Answer each prompt in a conversation of its own; recorder is the one that the band was opened with.

    tell is given a line after each answer. Raises what answering raises.
    """
    for number, prompt in enumerate(prompts, 1):
        # A session of its own each: it must go before the next, for the plan has room for one sequence.
        tell(f"{number} of {len(prompts)}: {_answer(ChatSession(band, text, params), prompt)} tokens")
    return recorder.trace(max(entry.num_experts for entry in band.manifest.experts))


def _answer(session: ChatSession, prompt: str) -> int:
    num_tokens = 0
    for event in session.answer(prompt, StopFlag()):
        if isinstance(event, Finished):
            num_tokens = event.usage.completion_tokens
    return num_tokens

"""What is asked of a model: first in the words all APIs share, then as tokens.

`Asked` is what an API's adapter makes of a request body; `AnswerRequest` is what the scheduler runs. Owns these
nouns. Refuses to know HTTP, any API's field names, and bands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..sampling import LogitsMask, SamplingParams
from .ports import OutputParser

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call. parameters: a JSON schema of an object. is_strict: arguments must match it."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether tools are called. auto: as the model likes; none: never; required: at least one; named: this one."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The form the answer must have. schema: for json_schema, None for json_object (any JSON object)."""

    kind: Literal["json_object", "json_schema"]
    schema: Mapping[str, Any] | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request in the words all APIs share.

    messages: for a chat; each {"role": "system" | "user" | "assistant" | "tool", "content": str, and of an assistant
    optionally "reasoning_content": str and "tool_calls": [{"id", "type": "function", "function": {"name", "arguments":
    object}}], of a tool "tool_call_id" and "name"}. prompt: for a bare continuation, a text or token ids; one of both
    is given. num_logprobs: alternatives to each token, 0 for the token's own alone, None for none at all.
    max_thinking_tokens: thinking is closed after so many. client: whose turn it is in the queue.
    """

    params: SamplingParams
    messages: tuple[Message, ...] | None = None
    prompt: str | tuple[int, ...] | None = None
    stop: tuple[str, ...] = ()
    num_logprobs: int | None = None
    thinking: bool | None = None
    max_thinking_tokens: int | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    may_call_several: bool = True
    response_format: ResponseFormat | None = None
    client: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's tokens. boundaries: positions, ascending, at which other prompts are likely to begin the same: the
    end of the system message, of the last message. starts_inside: it ends inside an open <think>.
    """

    tokens: tuple[int, ...]
    boundaries: tuple[int, ...] = ()
    starts_inside: bool = False


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """What the scheduler runs. make_parser and make_mask are called on the compute thread, once."""

    id: str
    prompt: Prompt
    params: SamplingParams
    make_parser: Callable[[], OutputParser]
    make_mask: Callable[[], LogitsMask | None] = lambda: None
    stop: tuple[str, ...] = ()
    num_logprobs: int | None = None
    max_thinking_tokens: int | None = None
    client: str = ""
    start_s: float = field(default_factory=time.perf_counter)

"""From what was asked to what runs: the prompt's tokens, and the places where other prompts may begin the same.

Owns preparing, which takes no band and may run in any thread. Refuses to know HTTP and the queue.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Sequence

from streamoe_engine.errors import ChatTemplateUnusable, ContextFull, UsageError

from ..text import Text, starts_inside
from .errors import BadRequest
from .ports import Fittings, RawParser
from .request import AnswerRequest, Asked, Message, Prompt

# Stands for another message, to see how much of a prompt does not depend on it.
_OTHER_CONTENT = "\ufffc"
# Text around a boundary may join a token with what follows; a token that the tokenizer never joins is safer.
_MOST_STEPS_BACK = 8
# More than a token of any text has on average.
_CHARS_A_TOKEN = 16


def prepare(asked: Asked, text: Text, fittings: Fittings, *, vocab_size: int, ctx_tokens: int) -> AnswerRequest:
    """The request to run.

    Raises BadRequest for what cannot be honoured, ChatTemplateUnusable, UsageError for text that is no Unicode, and
    ContextFull for text so long that its beginning alone passes ctx_tokens.
    """
    _check_thinking(asked, text)
    fittings.check(asked)
    prompt = (
        _chat_prompt(asked, text, fittings, ctx_tokens)
        if asked.messages is not None
        else _plain_prompt(asked, text, ctx_tokens)
    )
    if not prompt.tokens:
        raise BadRequest("the prompt is empty", "give at least a word", param="prompt")
    if max(prompt.tokens) >= vocab_size or min(prompt.tokens) < 0:
        raise BadRequest(f"a token id is not within the vocabulary of {vocab_size}", "see /v1/models", param="prompt")
    return AnswerRequest(
        id=secrets.token_hex(12),
        prompt=prompt,
        params=asked.params,
        make_parser=RawParser if asked.messages is None else fittings.parser_of(asked, prompt),
        make_mask=fittings.mask_of(asked, prompt),
        stop=asked.stop,
        num_logprobs=asked.num_logprobs,
        max_thinking_tokens=asked.max_thinking_tokens,
        client=asked.client,
    )


def _check_thinking(asked: Asked, text: Text) -> None:
    if asked.thinking and asked.messages is not None and not text.has_thinking_switch:
        raise BadRequest("this model has no thinking to switch on", "leave it out", param="thinking")


def _plain_prompt(asked: Asked, text: Text, ctx_tokens: int) -> Prompt:
    if isinstance(asked.prompt, str):
        _check_length(asked.prompt, text, ctx_tokens)
        return Prompt(tuple(text.tokenizer.encode(asked.prompt, with_special_tokens=True)))
    return Prompt(asked.prompt or ())


def _check_length(whole: str, text: Text, ctx_tokens: int) -> None:
    # A megabyte of text would become 100 MB of tokens before anybody counts them: look at the beginning first.
    most = ctx_tokens * _CHARS_A_TOKEN
    if len(whole) > most:
        num_tokens = len(text.tokenizer.encode(whole[:most], with_special_tokens=False))
        if num_tokens > ctx_tokens:
            raise ContextFull(num_tokens, ctx_tokens)


def _chat_prompt(asked: Asked, text: Text, fittings: Fittings, ctx_tokens: int) -> Prompt:
    messages, tools = fittings.template_messages(asked), fittings.template_tools(asked)

    def render(some: Sequence[Message], *, is_answered: bool = False) -> str:
        return text.render(some, thinking=asked.thinking, tools=tools, is_answered=is_answered)

    whole = render(messages)
    _check_length(whole, text, ctx_tokens)
    tokens, ends = text.tokenizer.encode_with_ends(whole)
    others = [_system_alone(messages), messages]
    cuts = set()
    for other, is_answered in zip(others, (False, True), strict=True):
        try:
            num_shared = _num_shared(whole, render(other, is_answered=is_answered))
        except (ChatTemplateUnusable, UsageError):
            continue  # templates may insist on a conversation's form; there is no boundary then
        cuts.add(_boundary(tokens, ends, num_shared, text.tokenizer.special_ids()))
    boundaries = tuple(sorted(cut for cut in cuts if 0 < cut < len(tokens)))
    return Prompt(tuple(tokens), boundaries, starts_inside(whole))


def _system_alone(messages: Sequence[Message]) -> list[Message]:
    # The messages before the first that is not the system's, and another in its place.
    num_system = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
    return [*messages[:num_system], {"role": "user", "content": _OTHER_CONTENT}]


def _num_shared(one: str, other: str) -> int:
    # How many characters two texts begin with in common.
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _boundary(tokens: Sequence[int], ends: Sequence[int], num_chars: int, special: frozenset[int]) -> int:
    # How many tokens lie within the first num_chars, back to the last special token if that is near.
    most = bisect_right(ends, num_chars)
    near = range(most, max(0, most - _MOST_STEPS_BACK), -1)
    return next((cut for cut in near if tokens[cut - 1] in special), most)

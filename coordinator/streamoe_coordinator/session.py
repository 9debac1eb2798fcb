"""A conversation: messages, and the tokens they became.

Owns the history and keeps it true to what the band has run: an answer's tokens stay as they were generated, for the
tokenizer might spell its text otherwise and a state cannot rewind. Refuses to know how answers are shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .events import Event, Finished, TokenEvent
from .generation import Generator, Request, TokenSequence
from .interrupt import StopFlag
from .runs_tokens import RunsTokens
from .sampling import Sampler, SamplingParams
from .text import Text, starts_inside
from .text.thinking import CLOSE_MARK


@dataclass(frozen=True, slots=True)
class Message:
    """role: "system", "user" or "assistant". content of an assistant: its text with the marks of its thinking."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class _Transcript:
    """The conversation as the model saw and wrote it: a text, and the tokens it was really made of."""

    text: str = ""
    tokens: tuple[int, ...] = ()


class ChatSession:
    """One conversation with one band. thinking: None leaves it to the model; may be changed between turns."""

    def __init__(
        self, band: RunsTokens, text: Text, params: SamplingParams, *, system: str = "", thinking: bool | None = None
    ) -> None:
        self._text, self._params = text, params
        self._generator = Generator(band, text.tokenizer, Sampler(params))
        self._system = system
        self._transcript = _Transcript()
        self.thinking = thinking
        self.messages: list[Message] = []
        self.clear()

    def clear(self) -> None:
        """Begin anew; the system message stays."""
        self.messages = [Message("system", self._system)] if self._system else []
        self._transcript = _Transcript()

    @property
    def num_tokens(self) -> int:
        """Tokens of the conversation so far."""
        return len(self._transcript.tokens)

    @property
    def sequence(self) -> TokenSequence:
        """What the band has run of it."""
        return self._generator.sequence

    def as_json(self) -> dict[str, Any]:
        """What was said, for `go_on`; the state is not in it."""
        return {
            "messages": [[message.role, message.content] for message in self.messages],
            "text": self._transcript.text,
            "tokens": list(self._transcript.tokens),
            "system": self._system,
            "thinking": self.thinking,
        }

    def go_on(self, talk: Mapping[str, Any], state: Any, tokens: Sequence[int]) -> None:
        """Be the conversation that `as_json` told of. state: has run `tokens`, and nothing else.

        Raises KeyError, TypeError and ValueError for what as_json did not make.
        """
        messages = [Message(str(role), str(content)) for role, content in talk["messages"]]
        transcript = _Transcript(str(talk["text"]), tuple(int(token) for token in talk["tokens"]))
        system, thinking = str(talk["system"]), talk["thinking"]
        if thinking not in (None, True, False):
            raise ValueError("thinking is neither on nor off")
        self.messages, self._transcript, self._system, self.thinking = messages, transcript, system, thinking
        self.sequence.adopt(state, tokens)

    def answer(self, content: str, stop: StopFlag) -> Iterator[Event]:
        """Answer a user's message; events as Generator.generate.

        The message and the answer, also a cancelled one, join the history. A message joins it with its answer only:
        after an error, or when stopped before the first token, the history is as it was.
        Raises ChatTemplateUnusable and what Generator.generate raises.
        """
        start_s = time.perf_counter()
        messages = [*self.messages, Message("user", content)]
        prompt_text = self._render(messages)
        prompt = self._tokens_of(prompt_text)
        request = Request(prompt, self._params.max_tokens, starts_inside(prompt_text), start_s)
        token_ids: list[int] = []
        has_answer = False
        try:
            for event in self._generator.generate(request, stop):
                if isinstance(event, TokenEvent) and event.token_id is not None:
                    token_ids.append(event.token_id)
                has_answer = has_answer or bool(token_ids) or (isinstance(event, Finished) and event.reason == "stop")
                yield event
        except GeneratorExit:  # the caller has seen enough: as good as cancelled
            self._keep(messages, prompt_text, request, token_ids)
            raise
        if has_answer:
            self._keep(messages, prompt_text, request, token_ids)

    def _keep(self, messages: list[Message], prompt_text: str, request: Request, token_ids: list[int]) -> None:
        text = self._text.tokenizer.decode(token_ids)
        self._transcript = _Transcript(prompt_text + text, (*request.prompt, *token_ids))
        # Thinking that the prompt opened and nothing closed is no answer.
        is_open = request.starts_inside and CLOSE_MARK not in text
        self.messages = [*messages, Message("assistant", "" if is_open else text)]

    def _render(self, messages: list[Message]) -> str:
        return self._text.render([{"role": m.role, "content": m.content} for m in messages], thinking=self.thinking)

    def _tokens_of(self, prompt_text: str) -> list[int]:
        known = self._transcript
        tokenizer = self._text.tokenizer
        if known.text and prompt_text.startswith(known.text):
            tail = tokenizer.encode(prompt_text[len(known.text) :], with_special_tokens=False)
            return [*known.tokens, *tail]
        return tokenizer.encode(prompt_text, with_special_tokens=False)

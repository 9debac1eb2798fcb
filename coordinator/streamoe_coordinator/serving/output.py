"""One answer's tokens to deltas: decoded, parsed, and ended at a stop sequence.

Owns the hold-back: nothing comes out that may yet be the beginning of a stop sequence, and nothing of one ever does.
Stop sequences are looked for in the content, not in thinking and tool calls. Refuses to know where tokens come from.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..text import StreamDecoder, TextTokenizer
from ..text.thinking import num_begun
from .ports import OutputParser
from .stream import ContentDelta, OutputDelta, TokenLogprob


class StopScanner:
    """Finds the first of several texts in text that arrives in pieces. found: the one that was, then all is over."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """What is certain to come before any stop; "" after one was found."""
        if self.found is not None:
            return ""
        self._held += text
        hits = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if hits:
            at, self.found = min(hits)
            passed, self._held = self._held[:at], ""
            return passed
        num_held = max((num_begun(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - num_held
        passed, self._held = self._held[:cut], self._held[cut:]
        return passed

    def finish(self) -> str:
        """What was held back and begins no stop after all."""
        passed, self._held = self._held, ""
        return passed


class AnswerOutput:
    """The deltas of one answer."""

    def __init__(self, tokenizer: TextTokenizer, parser: OutputParser, stops: Sequence[str]) -> None:
        self._decoder = StreamDecoder(tokenizer, keeps_special_tokens=parser.keeps_special_tokens)
        self._scanner = StopScanner(stops)
        self._logprobs: list[TokenLogprob] = []
        self.parser = parser
        self.num_reasoning = 0

    @property
    def stop_text(self) -> str | None:
        """The stop sequence that was found: no token is wanted after it."""
        return self._scanner.found

    def push(self, token_id: int, logprob: TokenLogprob | None = None) -> list[OutputDelta]:
        """What this token makes certain."""
        is_reasoning = self.parser.kind == "reasoning"
        self.num_reasoning += is_reasoning
        parsed = self.parser.push(self._decoder.push(token_id), token_id)
        if logprob is not None and not is_reasoning:
            self._logprobs.append(logprob)
        return self._scanned(parsed)

    def finish(self) -> list[OutputDelta]:
        """What was held back."""
        deltas = self._scanned(self.parser.finish(self._decoder.finish()))
        if self._scanner.found is None:
            deltas += self._content(self._scanner.finish())
        return deltas + ([ContentDelta("", self._taken_logprobs())] if self._logprobs else [])

    def _scanned(self, parsed: Sequence[OutputDelta]) -> list[OutputDelta]:
        deltas: list[OutputDelta] = []
        for delta in parsed:
            if self._scanner.found is not None:
                break
            if isinstance(delta, ContentDelta):
                deltas += self._content(self._scanner.push(delta.text))
            else:  # content ended before it: what was held began no stop
                deltas += [*self._content(self._scanner.finish()), delta]
        return deltas

    def _content(self, text: str) -> list[OutputDelta]:
        return [ContentDelta(text, self._taken_logprobs())] if text else []

    def _taken_logprobs(self) -> tuple[TokenLogprob, ...]:
        taken, self._logprobs = tuple(self._logprobs), []
        return taken

"""Answers that must follow a grammar: which tokens may come next.

Owns llguidance, the optional extra `grammar`: a mask over the model's own logits, so that reading and guessing know
nothing of it. Refuses to know of samplers and of any API.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamoe_engine import footprint
from streamoe_engine.errors import StreamoeError, UsageError

from ..sampling import LogitsMask
from ..text import StreamDecoder, TextTokenizer, ThinkingSplitter, give_back_free_memory
from ..text.tokenizer import TOKENIZER_FILE

if TYPE_CHECKING:
    from llguidance import LLMatcher

# Between the parts of JSON: nothing, a space, or a new line and its indentation. Without a bound a model that has lost
# its way writes white space for ever.
BOUNDED_SPACE: dict[str, Any] = {"x-guidance": {"whitespace_pattern": r"( |\n {0,16})?"}}
INSTALL_STEP = "install the extra: pip install 'streamoe[grammar]'"


class GrammarMissing(StreamoeError):
    """Raised when an answer shall follow a grammar and the extra is not installed, or was switched off."""

    def __init__(self) -> None:
        super().__init__("structured output needs the extra `grammar`, which this server has not loaded", INSTALL_STEP)


class GrammarMask:
    """One answer's grammar: see sampling.LogitsMask. At its end only the tokens that end an answer are left."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def mask(self, logits: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        """The logits with -inf for what may not come next. Raises UsageError where the grammar grew beyond limits."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            raise UsageError(f"the grammar cannot go on: {_first_line(self._matcher.get_error())}", "simplify it")
        allowed = np.unpackbits(bits, count=len(logits), bitorder="little").astype(bool)
        return np.where(allowed, logits, np.float32(-np.inf))

    def accept(self, token: int) -> None:
        """This token was chosen, one of the allowed."""
        accepted = self._matcher.consume_token(token)
        assert accepted, "the sampler chooses among the allowed tokens"


class MaskAfterThinking:
    """Another mask, from where the model's thinking ends. starts_inside: the prompt ends inside an open <think>."""

    def __init__(self, mask: LogitsMask, tokenizer: TextTokenizer, *, starts_inside: bool) -> None:
        self._mask = mask
        self._decoder = StreamDecoder(tokenizer, keeps_special_tokens=True)
        self._splitter = ThinkingSplitter(starts_inside)
        self._num_thought = 0

    def mask(self, logits: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        """The logits as they are while thinking, then as the other mask says."""
        return logits if self._splitter.is_inside else self._mask.mask(logits, tokens[self._num_thought :])

    def accept(self, token: int) -> None:
        """This token was chosen."""
        if self._splitter.is_inside:
            self._num_thought += 1
            self._splitter.push(self._decoder.push(token))
        else:
            self._mask.accept(token)


class Grammars:
    """Makes masks for one model's tokens. Opened before the plan is made: it costs memory."""

    def __init__(self, folder: Path, vocab_size: int, eos_ids: Sequence[int]) -> None:
        """vocab_size: of the model's logits. Raises GrammarMissing where llguidance is not installed."""
        try:
            from llguidance import LLMatcher, LLTokenizer
        except ImportError as error:
            raise GrammarMissing from error
        source = (folder / TOKENIZER_FILE).read_text(encoding="utf-8")
        self._tokens = LLTokenizer(source, n_vocab=vocab_size, eos_token=sorted(eos_ids), slices=[])
        self._matcher = LLMatcher

    def of_json_schema(self, schema: Mapping[str, Any]) -> GrammarMask:
        """A mask whose answers are JSON texts of a schema. Raises UsageError for a schema it cannot take."""
        grammar = json.dumps({"grammars": [{"json_schema": {**schema, **BOUNDED_SPACE}}]})
        return self._mask(grammar, "the JSON schema")

    def of_any_json(self) -> GrammarMask:
        """A mask whose answers are JSON objects."""
        return self.of_json_schema({"type": "object"})

    def of_lark(self, grammar: str) -> GrammarMask:
        """A mask whose answers are words of a Lark grammar. Raises UsageError for one it cannot take."""
        return self._mask(self._matcher.grammar_from_lark(grammar), "the grammar")

    def literal(self, mark: str) -> str:
        """How a mark is written in a Lark grammar: as its token where that is a special one, else as text."""
        ids = self._tokens.tokenize_str(mark, parse_special=True)
        if len(ids) == 1 and self._tokens.is_special_token(ids[0]):
            return f"<[{ids[0]}]>"
        return json.dumps(mark)

    def _mask(self, grammar: str, name: str) -> GrammarMask:
        matcher = self._matcher(self._tokens, grammar)
        if matcher.is_error():
            raise UsageError(f"{name} cannot be used: {_first_line(matcher.get_error())}", "simplify it")
        return GrammarMask(matcher)


def load_grammars(folder: Path, vocab_size: int, eos_ids: Sequence[int]) -> tuple[Grammars, int]:
    """As Grammars, and the bytes it added to this process's footprint."""
    give_back_free_memory()
    before_bytes = footprint.current().total_bytes
    grammars = Grammars(folder, vocab_size, eos_ids)
    grammars.of_any_json().mask(np.zeros(vocab_size, np.float32), ())  # what the first use allocates is part of it
    give_back_free_memory()
    return grammars, max(0, footprint.current().total_bytes - before_bytes)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]

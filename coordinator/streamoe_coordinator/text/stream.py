"""Text of an answer while its tokens arrive.

Owns one answer's decoding: text comes out as soon as it is certain, and never half a character.
Refuses to know what the text means.
"""

from __future__ import annotations

from tokenizers.decoders import DecodeStream

from .tokenizer import TextTokenizer


class StreamDecoder:
    """Decodes one answer. The pieces of `push` and the rest of `finish`, joined, are the decoded whole.

    keeps_special_tokens: their text is part of it.
    """

    def __init__(self, tokenizer: TextTokenizer, *, keeps_special_tokens: bool = False) -> None:
        self._tokenizer, self._keeps_special_tokens = tokenizer, keeps_special_tokens
        self._stream = DecodeStream(skip_special_tokens=not keeps_special_tokens)
        self._ids: list[int] = []
        self._num_sent = 0  # characters

    def push(self, token_id: int) -> str:
        """The text this token makes certain; "" while a character is incomplete."""
        self._ids.append(token_id)
        piece = self._stream.step(self._tokenizer.raw, token_id) or ""
        self._num_sent += len(piece)
        return piece

    def finish(self) -> str:
        """What is left after the last token: an incomplete character, as U+FFFD."""
        return self._tokenizer.decode(self._ids, keeps_special_tokens=self._keeps_special_tokens)[self._num_sent :]

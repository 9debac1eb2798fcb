"""A model's tokenizer: text to token ids and back, and which ids end an answer.

Owns the tokenizer files of a model folder and wraps the `tokenizers` library; nothing else imports it but the
streaming decoder. Refuses to know of conversations, and of what its memory costs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from streamoe_engine.errors import StreamoeError, TokenizerUnusable, UsageError
from streamoe_engine.uncached import aligned_buffer, read_blocks

from .lean_bpe import lean_tokenizer

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_READ_BYTES = 1024**2


class TextTokenizer:
    """The tokenizer of one model folder.

    eos_ids: the tokens that end an answer. special_tokens: by name ("bos_token", ...), what a chat template may use.
    """

    def __init__(self, folder: Path) -> None:
        """Raises TokenizerUnusable when tokenizer.json is missing, or a file cannot be read."""
        self.raw = _load(folder / TOKENIZER_FILE)
        config = read_json(folder / TOKENIZER_CONFIG_FILE)
        self.special_tokens = _special_tokens(config, read_json(folder / "special_tokens_map.json"))
        self.eos_ids = self._eos_ids(folder)

    def encode(self, text: str, *, with_special_tokens: bool) -> list[int]:
        """Token ids of `text`; with_special_tokens adds what the model wants around a text, such as a start token.

        Raises UsageError for text with lone surrogates, which is what arguments that are not UTF-8 become.
        """
        _check_unicode(text)
        return list(self.raw.encode(text, add_special_tokens=with_special_tokens).ids)

    def encode_with_ends(self, text: str) -> tuple[list[int], list[int]]:
        """Token ids of `text` as encode gives them without special tokens, and where each ends in it, in characters.

        Raises UsageError as encode.
        """
        _check_unicode(text)
        encoding = self.raw.encode(text, add_special_tokens=False)
        return list(encoding.ids), [end for _, end in encoding.offsets]

    def id_of(self, token: str) -> int | None:
        """The id of one token by its text, such as a mark's; None where there is none."""
        found = self.raw.token_to_id(token)
        return None if found is None else int(found)

    def special_ids(self) -> frozenset[int]:
        """The ids of special tokens, whose text is left out of answers."""
        return frozenset(number for number, token in self.raw.get_added_tokens_decoder().items() if token.special)

    def decode(self, ids: Sequence[int], *, keeps_special_tokens: bool = False) -> str:
        """The text of token ids, special tokens left out unless kept; bytes that are no character become U+FFFD."""
        return str(self.raw.decode(list(ids), skip_special_tokens=not keeps_special_tokens))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token, which may be part of a character."""
        text = self.decode([token_id], keeps_special_tokens=True)
        if "\ufffd" not in text:
            return text.encode()
        piece = str(self.raw.id_to_token(token_id))
        if piece.startswith("<0x") and len(piece) == 6:  # byte fallback of SentencePiece
            return bytes([int(piece[3:5], 16)])
        known = _byte_of_letter()
        if all(letter in known for letter in piece):
            return bytes(known[letter] for letter in piece)
        return text.encode()

    def _eos_ids(self, folder: Path) -> frozenset[int]:
        found: set[int] = set()
        config = read_json(folder / "config.json")
        for source in (read_json(folder / "generation_config.json"), config, config.get("text_config") or {}):
            ids = source.get("eos_token_id")
            found.update(ids if isinstance(ids, list) else [] if ids is None else [ids])
        named = self.raw.token_to_id(self.special_tokens.get("eos_token", ""))
        return frozenset(found if named is None else found | {named})


@cache
def _byte_of_letter() -> dict[str, int]:
    # Byte-level BPE writes a byte as itself where it is printable, else as the next letter from U+0100 on.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # lone surrogates
        raise UsageError("the text is not valid Unicode", "give it in UTF-8") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a small JSON file, {} where there is no such file. Raises TokenizerUnusable for anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TokenizerUnusable(f"{path} cannot be read: {error}", "copy the file from the checkpoint again") from error
    if not isinstance(value, dict):
        raise TokenizerUnusable(f"{path} holds no JSON object", "copy the file from the checkpoint again")
    return value


def _load(path: Path) -> Tokenizer:
    step = "give a model folder with the checkpoint's tokenizer.json in it"
    try:
        num_bytes = path.stat().st_size
        # Past the page cache: up to 30 MB that would otherwise be charged to this process's control group.
        blocks = read_blocks(path, 0, num_bytes, aligned_buffer(_READ_BYTES))
        content = b"".join(bytes(block) for block in blocks)
    except (OSError, StreamoeError) as error:
        raise TokenizerUnusable(f"{path} cannot be read: {error}", step) from error
    try:
        tokenizer = lean_tokenizer(content) or Tokenizer.from_buffer(content)
    except ValueError as error:
        raise TokenizerUnusable(f"{path} is not a tokenizer: {error}", step) from error
    # Some checkpoints ship settings of their training: a prompt must not be cut or padded.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _special_tokens(*sources: dict[str, Any]) -> dict[str, str]:
    # A value is the token's text, or an object with it under "content".
    found: dict[str, str] = {}
    for name in _SPECIAL_NAMES:
        for source in sources:
            value = source.get(name)
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str):
                found.setdefault(name, value)
    return found

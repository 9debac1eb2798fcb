"""A byte-level tokenizer small enough for tiny models, with a chat template."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
THINK_TOKENS = ("<think>", "</think>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(folder: Path, vocab_size: int) -> int:
    """Write a byte-level tokenizer of exactly vocab_size (>= 248) ids and its template; returns <|im_end|>'s id.

    Bytes that no UTF-8 text has (0xC0, 0xC1, 0xF5 to 0xFF) get no token, which leaves room for special tokens.
    """
    pieces = [piece for byte, piece in enumerate(_byte_pieces()) if byte not in (0xC0, 0xC1) and byte < 0xF5]
    num_fillers = vocab_size - len(pieces) - len(SPECIAL_TOKENS) - len(THINK_TOKENS)
    assert num_fillers >= 0, f"a vocabulary of {vocab_size} cannot hold {len(pieces)} bytes and the special tokens"
    pieces += [f"<filler{i}>" for i in range(num_fillers)] + [*THINK_TOKENS, *SPECIAL_TOKENS]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(token, special=False) for token in THINK_TOKENS])
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return vocab["<|im_end|>"]


def _byte_pieces() -> list[str]:
    # Byte-level BPE writes a byte as itself where it is printable, else as the next letter from U+0100 on.
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]

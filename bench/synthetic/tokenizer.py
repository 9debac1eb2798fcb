"""A tokenizer of any vocabulary size that turns every text into ids and back.

Owns the vocabulary: 256 bytes, three special tokens, then filler words that no text is encoded to. Byte-level
without merges, so a text has as many tokens as UTF-8 bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .shapes import MIN_VOCAB

SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
NUM_BYTES = 256
START_OF_TURN_ID, END_OF_TURN_ID, END_OF_TEXT_ID = range(NUM_BYTES, NUM_BYTES + 3)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_alphabet() -> list[str]:
    """The printable stand-ins that byte-level BPE gives the 256 bytes, in byte order."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(NUM_BYTES) if byte not in printable]
    return [chr(byte if byte in printable else NUM_BYTES + others.index(byte)) for byte in range(NUM_BYTES)]


def vocabulary(size: int) -> list[str]:
    """All tokens in id order. size is at least MIN_VOCAB."""
    assert size >= MIN_VOCAB, size
    known = [*byte_alphabet(), *SPECIAL_TOKENS]
    return known + [f"<t{index}>" for index in range(len(known), size)]


def _added(token: str, index: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": token, **flags, "special": True}


def tokenizer_json(size: int) -> dict[str, Any]:
    """The content of tokenizer.json, as the `tokenizers` library reads it."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(token, NUM_BYTES + i) for i, token in enumerate(SPECIAL_TOKENS)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: index for index, token in enumerate(vocabulary(size))},
            "merges": [],
        },
    }


def write_tokenizer(folder: Path, size: int) -> None:
    """Write tokenizer.json, tokenizer_config.json and generation_config.json."""
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(size), ensure_ascii=False), encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
    generation = {"eos_token_id": [END_OF_TURN_ID, END_OF_TEXT_ID], "pad_token_id": END_OF_TEXT_ID}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n")

"""Everything about text: tokenizer, chat template, streaming decoder, thinking.

Owns loading them from a model folder and telling what that cost. Refuses to know of models and bands.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamoe_engine import footprint
from streamoe_engine.errors import ChatTemplateUnusable

from .stream import StreamDecoder
from .template import ChatTemplate, find_template
from .thinking import Piece, ThinkingSplitter, starts_inside
from .tokenizer import TextTokenizer

__all__ = ["Piece", "StreamDecoder", "Text", "TextTokenizer", "ThinkingSplitter", "load_text", "starts_inside"]


@dataclass(frozen=True, slots=True)
class Text:
    """A model folder's tokenizer and chat template; a base model has no template."""

    tokenizer: TextTokenizer
    template: ChatTemplate | None

    @property
    def has_thinking_switch(self) -> bool:
        """Whether the template lets a caller turn thinking on and off."""
        return self.template is not None and "enable_thinking" in self.template.source

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        thinking: bool | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        is_answered: bool = False,
    ) -> str:
        """As ChatTemplate.render. Raises ChatTemplateUnusable also where the model has no template."""
        if self.template is None:
            raise ChatTemplateUnusable(
                "this model has no chat template, so it cannot chat",
                "let it continue a text instead: streamoe chat MODEL --raw --prompt TEXT",
            )
        return self.template.render(messages, thinking=thinking, tools=tools, is_answered=is_answered)


def load_text(folder: Path) -> tuple[Text, int]:
    """The text side of a model folder, and the bytes it added to this process's footprint.

    Raises TokenizerUnusable or ChatTemplateUnusable.
    """
    give_back_free_memory()
    before_bytes = footprint.current().total_bytes
    tokenizer = TextTokenizer(folder)
    source = find_template(folder)
    template = None if source is None else ChatTemplate(source, tokenizer.special_tokens)
    give_back_free_memory()
    return Text(tokenizer, template), max(0, footprint.current().total_bytes - before_bytes)


def give_back_free_memory() -> None:
    """Let the system have what was freed: glibc keeps 16 of 32 MiB after parsing a vocabulary of 49,152."""
    gc.collect()  # or garbage of before, freed in between, would be taken off what loading costs
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)

"""Tools and structured output of one model: see ports.Fittings.

Owns the choice of the model's tool format, and which mask an answer gets. Refuses to know of HTTP and of bands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..sampling import LogitsMask
from ..text import Text
from ..text.thinking import CLOSE_MARK, OPEN_MARK
from .errors import BadRequest, NotBuiltIn
from .grammar import INSTALL_STEP, GrammarMask, Grammars, MaskAfterThinking
from .ports import OutputParser, ThinkingParser
from .request import Asked, Message, Prompt, Tool
from .tools.forced import forced_call_grammar
from .tools.formats import find_format
from .tools.parser import ToolParser
from .tools.rendering import as_function, as_text


class ModelFittings:
    """What one model does with tools and forms. grammars: None where the extra is missing or switched off."""

    def __init__(self, text: Text, grammars: Grammars | None) -> None:
        self._text, self._grammars = text, grammars
        tokenizer = text.tokenizer
        source = text.template.source if text.template else None
        self._format = find_format(source, lambda mark: tokenizer.id_of(mark) is not None)
        special = tokenizer.special_ids()
        marks = {tokenizer.id_of(mark) for mark in (self._format.start, self._format.end, OPEN_MARK, CLOSE_MARK)}
        # Some formats have special tokens inside a call too, so in a call all of them are shown.
        self._keeps_special_tokens = bool(marks & special)
        self._hidden = special - marks

    def check(self, asked: Asked) -> None:
        """Raises BadRequest for tools by names they have not, NotBuiltIn for forms without the extra; UsageError for
        a schema or a grammar that cannot be used."""
        choice, names = asked.tool_choice, [tool.name for tool in asked.tools]
        if choice.mode in ("required", "named") and not names:
            raise BadRequest("tool_choice asks for a call and there are no tools", "give tools", param="tool_choice")
        if choice.mode == "named" and choice.name not in names:
            known = ", ".join(names)
            raise BadRequest(f"tool_choice names {choice.name}, the tools are {known}", "name one", param="tool_choice")
        if self._is_forced(asked) and asked.response_format is not None:
            raise BadRequest(
                "an answer cannot be a forced tool call and have a response_format",
                "leave one out",
                param="tool_choice",
            )
        if asked.response_format is not None or self._is_forced(asked):
            param = "tool_choice" if self._is_forced(asked) else "response_format"
            if self._grammars is None:
                raise NotBuiltIn(f"{param} needs the extra `grammar`", INSTALL_STEP, param=param)
            self._grammar_of(asked)  # a schema that cannot be used is refused now

    def template_tools(self, asked: Asked) -> list[dict[str, Any]] | None:
        """The tools that may be called, where the template knows tools."""
        offered = self._offered(asked)
        return [as_function(tool) for tool in offered] if offered and self._format.is_native else None

    def template_messages(self, asked: Asked) -> list[Message]:
        """The conversation as the template takes it: tools, calls and results as text where it knows none."""
        messages = asked.messages or ()
        return list(messages) if self._format.is_native else as_text(messages, self._offered(asked))

    def parser_of(self, asked: Asked, prompt: Prompt) -> Callable[[], OutputParser]:
        """Makes the answer's parser."""
        functions = [as_function(tool) for tool in self._offered(asked)]
        if not functions:
            return lambda: ThinkingParser(prompt.starts_inside)
        return lambda: ToolParser(
            self._format,
            functions,
            starts_inside=prompt.starts_inside,
            keeps_special_tokens=self._keeps_special_tokens,
            hidden=self._hidden,
        )

    def mask_of(self, asked: Asked, prompt: Prompt) -> Callable[[], LogitsMask | None]:
        """Makes the answer's mask: a forced call's, or the form's; it begins where thinking ends."""
        if not self._is_forced(asked) and asked.response_format is None:
            return lambda: None

        def make() -> LogitsMask:
            return MaskAfterThinking(self._grammar_of(asked), self._text.tokenizer, starts_inside=prompt.starts_inside)

        return make

    def _grammar_of(self, asked: Asked) -> GrammarMask:
        assert self._grammars is not None, "check has refused it"
        if self._is_forced(asked):
            only_one = asked.tool_choice.mode == "named" or not asked.may_call_several
            grammar = forced_call_grammar(self._format, self._offered(asked), self._grammars.literal, only_one=only_one)
            return self._grammars.of_lark(grammar)
        assert asked.response_format is not None
        schema = asked.response_format.schema
        return self._grammars.of_any_json() if schema is None else self._grammars.of_json_schema(schema)

    @staticmethod
    def _is_forced(asked: Asked) -> bool:
        return asked.tool_choice.mode in ("required", "named")

    @staticmethod
    def _offered(asked: Asked) -> list[Tool]:
        # A named tool is offered alone: the model would describe another one otherwise.
        choice = asked.tool_choice
        if choice.mode == "none":
            return []
        return [tool for tool in asked.tools if choice.mode != "named" or tool.name == choice.name]

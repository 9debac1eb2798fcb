"""A model's chat template: a conversation to the text the model was trained on.

Owns finding the template and running it in Jinja's sandbox with the names Hugging Face templates expect.
Refuses to know of tokens. A template is a stranger's program: it sees these names and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from streamoe_engine.errors import ChatTemplateUnusable

from .tokenizer import TOKENIZER_CONFIG_FILE, read_json

TEMPLATE_FILE = "chat_template.jinja"
# What running a stranger's program may raise besides Jinja's own errors.
_PROGRAM_ERRORS = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


class _GenerationBlock(Extension):
    """{% generation %}...{% endgeneration %}: marks the answer for training; here its content as it is."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes between the two tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One compiled template; special_tokens are given to it by name ("bos_token", ...)."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Raises ChatTemplateUnusable for a source that is no template."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
        self._special_tokens = dict(special_tokens)
        self.source = source
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise _unusable(f"cannot be read: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        thinking: bool | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        is_answered: bool = False,
    ) -> str:
        """The text of a conversation, up to where the model's answer begins.

        messages: {"role", "content"} each, and what else a template knows ("tool_calls", ...). thinking: what the
        template's `enable_thinking` is to be; None leaves it undefined, which is the model's own default. tools: what
        it gets as `tools`. is_answered: leave out the beginning of an answer. Raises ChatTemplateUnusable when the
        template fails.
        """
        names: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=not is_answered,
                tools=None if tools is None else [dict(tool) for tool in tools],
                documents=None,
                **self._special_tokens,
                **names,
            )
        except (TemplateError, *_PROGRAM_ERRORS) as error:
            raise _unusable(f"fails on this conversation: {error}") from error


def find_template(folder: Path) -> str | None:
    """The template's source: chat_template.jinja, else the one in tokenizer_config.json, else None.

    Where tokenizer_config.json has several by name, the one named "default".
    """
    try:
        return (folder / TEMPLATE_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        found = read_json(folder / TOKENIZER_CONFIG_FILE).get("chat_template")
    except (OSError, ValueError) as error:
        raise _unusable(f"({folder / TEMPLATE_FILE}) cannot be read: {error}") from error
    if isinstance(found, list):
        found = {entry.get("name"): entry.get("template") for entry in found}.get("default")
    return found if isinstance(found, str) else None


def _unusable(what: str) -> ChatTemplateUnusable:
    return ChatTemplateUnusable(
        f"the model's chat template {what}", "give the text as the model should see it: --raw with --prompt"
    )


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML and sorts keys, which the models were not trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)

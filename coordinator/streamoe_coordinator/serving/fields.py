"""The fields of an API's request body, as a table: what is read, checked, described and documented comes of it.

Owns reading values and refusing wrong ones by name; null is as good as left out. A field that no table has is ignored
and named in the response header X-Streamoe-Ignored. Refuses to know what any field means.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from .errors import BadRequest

Schema = dict[str, Any]


class Kind(Protocol):
    """What a value may be."""

    @property
    def schema(self) -> Schema:
        """The same as a JSON schema."""
        ...

    def read(self, value: Any, name: str) -> Any:
        """The value to use. Raises BadRequest that names the field."""
        ...


def wrong(name: str, value: Any, wanted: str) -> BadRequest:
    """The refusal of a value."""
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return BadRequest(f"{name} is {shown[:80]}{'...' if len(shown) > 80 else ''}", f"give {wanted}", param=name)


@dataclass(frozen=True, slots=True)
class Text:
    """A string of at most max_chars characters."""

    max_chars: int | None = None
    is_filled: bool = False

    @property
    def schema(self) -> Schema:
        most = {} if self.max_chars is None else {"maxLength": self.max_chars}
        return {"type": "string", **({"minLength": 1} if self.is_filled else {}), **most}

    def read(self, value: Any, name: str) -> str:
        if not isinstance(value, str) or (self.is_filled and not value):
            raise wrong(name, value, "a text")
        if self.max_chars is not None and len(value) > self.max_chars:
            raise wrong(name, value, f"a text of at most {self.max_chars} characters")
        return value


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""

    @property
    def schema(self) -> Schema:
        return {"type": "boolean"}

    def read(self, value: Any, name: str) -> bool:
        if not isinstance(value, bool):
            raise wrong(name, value, "true or false")
        return value


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from least to most, both included."""

    least: int
    most: int = (1 << 53) - 1

    @property
    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def read(self, value: Any, name: str) -> int:
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if not is_whole or isinstance(value, bool) or not self.least <= value <= self.most:
            raise wrong(name, value, f"a whole number from {self.least} to {self.most}")
        return int(value)


@dataclass(frozen=True, slots=True)
class Number:
    """A number from least to most; least itself only where it is included."""

    least: float
    most: float
    has_least: bool = True

    @property
    def schema(self) -> Schema:
        return {
            "type": "number",
            "minimum" if self.has_least else "exclusiveMinimum": self.least,
            "maximum": self.most,
        }

    def read(self, value: Any, name: str) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            is_over = value >= self.least if self.has_least else value > self.least
            if is_over and value <= self.most:
                return float(value)
        raise wrong(name, value, f"a number {'from' if self.has_least else 'over'} {self.least} to {self.most}")


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few values; with one value, a field that can be said but not changed."""

    values: tuple[Any, ...]

    @property
    def schema(self) -> Schema:
        return {"enum": list(self.values)}

    def read(self, value: Any, name: str) -> Any:
        for known in self.values:
            if value == known and isinstance(value, bool) == isinstance(known, bool):
                return known
        raise wrong(name, value, " or ".join(json.dumps(known) for known in self.values) + ": no other is supported")


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A field of the API that is not honoured here: any value is refused."""

    @property
    def schema(self) -> Schema:
        return {"not": {}}

    def read(self, value: Any, name: str) -> Any:
        raise BadRequest(f"{name} is not supported", "leave it out", param=name)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of at most max_items; a single item is taken as a list of it where may_be_single."""

    kind: Kind
    max_items: int
    may_be_single: bool = False
    min_items: int = 0

    @property
    def schema(self) -> Schema:
        listed = {"type": "array", "items": self.kind.schema, "maxItems": self.max_items, "minItems": self.min_items}
        return {"anyOf": [self.kind.schema, listed]} if self.may_be_single else listed

    def read(self, value: Any, name: str) -> list[Any]:
        if not isinstance(value, list):
            if not self.may_be_single:
                raise wrong(name, value, "a list")
            return [self.kind.read(value, name)]
        if not self.min_items <= len(value) <= self.max_items:
            raise wrong(name, value, f"{self.min_items} to {self.max_items} entries")
        return [self.kind.read(item, f"{name}[{i}]") for i, item in enumerate(value)]


@dataclass(frozen=True, slots=True)
class Anything:
    """An object or another value that is read elsewhere. described: its schema."""

    described: Mapping[str, Any] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        return dict(self.described)

    def read(self, value: Any, name: str) -> Any:
        if self.described.get("type") == "object" and not isinstance(value, dict):
            raise wrong(name, value, "an object")
        return value


@dataclass(frozen=True, slots=True)
class Either:
    """The first kind that takes the value."""

    kinds: tuple[Kind, ...]

    @property
    def schema(self) -> Schema:
        return {"anyOf": [kind.schema for kind in self.kinds]}

    def read(self, value: Any, name: str) -> Any:
        steps = []
        for kind in self.kinds:
            try:
                return kind.read(value, name)
            except BadRequest as error:
                steps.append(error.next_step.removeprefix("give "))
        raise wrong(name, value, ", or ".join(steps))


@dataclass(frozen=True, slots=True)
class Part:
    """An object with fields of its own; the fields that no table has are refused, since nobody would see them."""

    fields: tuple[Field, ...]

    @property
    def schema(self) -> Schema:
        return object_schema(self.fields, is_closed=True)

    def read(self, value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong(name, value, "an object")
        values, ignored = read_fields(self.fields, value, prefix=f"{name}.")
        if ignored:
            raise BadRequest(f"{name}.{ignored[0]} is not known", "leave it out", param=f"{name}.{ignored[0]}")
        return values


@dataclass(frozen=True, slots=True)
class Field:
    """One field. status: honoured as it says; or accepted, which changes nothing here. what: how, for the docs."""

    name: str
    kind: Kind
    what: str
    status: Literal["honoured", "accepted"] = "honoured"
    is_needed: bool = False


def read_fields(
    fields: Sequence[Field], body: Mapping[str, Any], *, prefix: str = ""
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The given values by name, and the names that no field has. Raises BadRequest."""
    values: dict[str, Any] = {}
    for entry in fields:
        value = body.get(entry.name)
        if value is not None:
            values[entry.name] = entry.kind.read(value, prefix + entry.name)
        elif entry.is_needed:
            name = prefix + entry.name
            raise BadRequest(f"{name} is missing", f"give {name}", param=name)
    known = {entry.name for entry in fields}
    return values, tuple(sorted(str(name) for name in body if name not in known))


def object_schema(fields: Sequence[Field], *, is_closed: bool = False) -> Schema:
    """The fields as a JSON schema of an object; null stands for a field left out."""
    properties = {
        entry.name: entry.kind.schema if entry.is_needed else {"anyOf": [entry.kind.schema, {"type": "null"}]}
        for entry in fields
    }
    needed = [entry.name for entry in fields if entry.is_needed]
    return {
        "type": "object",
        "properties": properties,
        **({"required": needed} if needed else {}),
        **({"additionalProperties": False} if is_closed else {}),
    }

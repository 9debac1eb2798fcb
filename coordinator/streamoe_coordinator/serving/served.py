"""What one server serves: the model by its names, its text side, the scheduler. Owns the names' rules."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

from ..sampling import SamplingParams
from ..text import Text
from .errors import NotServed
from .ports import Fittings
from .scheduler import Scheduler

ANY_NAME = "*"


@dataclass(frozen=True, slots=True)
class Served:
    """model_id: the model's name. aliases: other names it answers to; "*" stands for any. defaults: sampling where a
    request says nothing. vocab_size: of its logits. family, model_bytes, digest: of its folder, for lists.
    """

    model_id: str
    text: Text
    fittings: Fittings
    scheduler: Scheduler
    defaults: SamplingParams
    vocab_size: int
    aliases: tuple[str, ...] = ()
    family: str = ""
    model_bytes: int = 0
    digest: str = ""
    created_s: int = field(default_factory=lambda: int(time.time()))

    def check_name(self, name: str | None) -> None:
        """Whether a request's model is this one; no name is any. Raises NotServed with the names."""
        known = (self.model_id, *self.aliases)
        if name is None or ANY_NAME in known or name in known or name.removesuffix(":latest") in known:
            return
        raise NotServed(
            f"no model '{name[:80]}' is served here",
            f"use '{self.model_id}', or serve with --alias {name[:80]} (--alias '*' for any name)",
        )

    def params(self, values: dict[str, Any], **renamed: Any) -> SamplingParams:
        """The request's sampling over the model's defaults. values: SamplingParams' names; renamed: the same by name.

        Values are within their ranges already.
        """
        names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty")
        given = {name: values[name] for name in (*names, "frequency_penalty", "max_tokens") if name in values}
        if "seed" in values:
            given["seed"] = values["seed"] % (1 << 64)
        given |= {name: value for name, value in renamed.items() if value is not None}
        return replace(self.defaults, **given)

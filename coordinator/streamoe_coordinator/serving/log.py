"""The server's log: a line an answer. Human words, or JSON lines.

Owns its form. Never holds what was asked or answered.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from .stream import Ended

logger = logging.getLogger("streamoe_coordinator.serving")


def log_answer(request_id: str, ended: Ended) -> None:
    """One line on an answer that is over."""
    tokens, speed = ended.tokens, ended.timings.tokens_per_s
    figures = {
        "request": request_id,
        "reason": ended.reason,
        "prompt_tokens": tokens.prompt_tokens,
        "cached_tokens": tokens.cached_tokens,
        "completion_tokens": tokens.completion_tokens,
        "tokens_per_s": None if speed is None else round(speed, 2),
    }
    words = " ".join(f"{name}={value}" for name, value in figures.items())
    logger.info("%s", words, extra={"figures": figures})


def set_up(*, as_json: bool) -> None:
    """Log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    for name in ("streamoe_coordinator.serving", "uvicorn.error"):
        named = logging.getLogger(name)
        named.handlers, named.propagate = [handler], False
        named.setLevel(logging.INFO if name.startswith("streamoe") else logging.WARNING)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(record.created)),
            "level": record.levelname.lower(),
            **(getattr(record, "figures", None) or {"message": record.getMessage()}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)

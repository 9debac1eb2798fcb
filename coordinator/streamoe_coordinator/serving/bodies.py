"""Reading request bodies: none too large, and all together within what the plan has for them.

Owns the bytes in flight. Refuses to know what a body means.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import ClientDisconnect, Request

from .errors import BadRequest, BodyTooLarge, QueueFull

MAX_BODY_BYTES = 4 * 1024**2
_MAX_DEPTH = 64
_MOST_THROWN_AWAY_BYTES = 64 * 1024**2


class Bodies:
    """Bodies of at most max_bytes each, and together."""

    def __init__(self, max_bytes: int = MAX_BODY_BYTES) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0

    @asynccontextmanager
    async def json_object(self, request: Request) -> AsyncIterator[dict[str, Any]]:
        """The body as an object, held while inside.

        Raises BodyTooLarge, QueueFull when others' bodies fill the room, BadRequest for what is no JSON object.
        """
        content, taken_bytes = bytearray(), 0
        try:
            await self._check_announced(request)
            async for chunk in request.stream():
                self._check(len(content) + len(chunk))
                if self.held_bytes + len(chunk) > self.max_bytes:
                    raise QueueFull("the requests being read fill their memory", retry_after_s=1)
                self.held_bytes += len(chunk)
                taken_bytes += len(chunk)
                content += chunk
            body = _parsed(bytes(content))
            content.clear()
            yield body
        except ClientDisconnect as error:
            raise BadRequest("the request was cut short", "send it whole") from error
        finally:
            self.held_bytes -= taken_bytes

    async def _check_announced(self, request: Request) -> None:
        announced = request.headers.get("content-length", "0")
        num_bytes = int(announced) if announced.isdecimal() else 0
        if self.max_bytes < num_bytes <= _MOST_THROWN_AWAY_BYTES:
            # A client that is cut off while it sends does not read why: let it send, keep nothing.
            async for _ in request.stream():
                pass
        self._check(num_bytes)

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self.max_bytes:
            raise BodyTooLarge(
                f"the request has {num_bytes} B or more, the most is {self.max_bytes} B", "send less text"
            )


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}", "send a JSON object") from error
    if not isinstance(body, dict):
        raise BadRequest(f"the body is a JSON {type(body).__name__}, not an object", "send a JSON object")
    if _is_deeper(body, _MAX_DEPTH):
        raise BadRequest(f"the body nests deeper than {_MAX_DEPTH} levels", "send something flatter")
    return body


def _is_deeper(value: Any, levels: int) -> bool:
    # Templates and schema compilers recurse: what is too deep for them is refused here.
    layer = [value]
    for _ in range(levels):
        values = [entry.values() if isinstance(entry, dict) else entry for entry in layer]
        layer = [inner for entries in values for inner in entries if isinstance(inner, dict | list)]
        if not layer:
            return False
    return True

"""The errors of serving, each with its HTTP status.

ServingError
├── BadRequest          400  a field that is no such value, or one that is not supported here; names the field
│   └── NotBuiltIn      400  needs something this server has not: an extra, an image encoder
├── Unauthorized        401  the API key is missing or wrong
├── Refused             403  a Host or an Origin that is not this server's
├── NotServed           404  a model, an answer or a path that is not here
├── BodyTooLarge        413  more bytes than the limit
├── QueueFull           429  as many requests wait as may; come again after retry_after_s
├── NotReady            503  the model is being opened
├── Draining            503  the server is ending
└── EngineStopped       500  the compute thread ended with an error of ours

Owns the statuses, also those of the engine's errors. Refuses to know how an API words an error.
"""

from __future__ import annotations

from streamoe_engine.errors import ChatTemplateUnusable, ContextFull, StreamoeError, UsageError


class ServingError(StreamoeError):
    """Base of what a client is told. param: the field at fault, "" where there is none."""

    status = 500
    param = ""


class BadRequest(ServingError):
    """Raised for a field whose value cannot be honoured."""

    status = 400

    def __init__(self, message: str, next_step: str = "", *, param: str = "") -> None:
        super().__init__(message, next_step)
        self.param = param


class NotBuiltIn(BadRequest):
    """Raised for something asked for that needs a part this server runs without."""


class Unauthorized(ServingError):
    """Raised when the API key is missing or wrong."""

    status = 401


class Refused(ServingError):
    """Raised for a Host or Origin that a page of another site would send."""

    status = 403


class NotServed(ServingError):
    """Raised for a model, an answer or a path that is not here."""

    status = 404


class BodyTooLarge(ServingError):
    """Raised when a request has more bytes than the limit; the figures are in the message."""

    status = 413


class QueueFull(ServingError):
    """Raised when as many requests wait as may."""

    status = 429

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message, f"try again in {retry_after_s} s, or serve with a longer --queue")
        self.retry_after_s = retry_after_s


class NotReady(ServingError):
    """Raised while the model is being opened."""

    status = 503


class Draining(ServingError):
    """Raised when the server is ending and takes no more requests."""

    status = 503


class EngineStopped(ServingError):
    """Raised for every request after the compute thread ended with an error that nobody expected."""


def status_of(error: StreamoeError) -> int:
    """The HTTP status of an error: what the client can mend is 4xx."""
    if isinstance(error, ServingError):
        return error.status
    return 400 if isinstance(error, ContextFull | ChatTemplateUnusable | UsageError) else 500

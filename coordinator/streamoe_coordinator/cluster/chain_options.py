"""How a chain is to run. Pure data."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from .history import DEFAULT_HISTORY_BYTES
from .timers import Timers


@dataclass(frozen=True, slots=True)
class ChainOptions:
    """words_wanted: how many of the likeliest words the sampler needs (words.words_wanted), None: all logits; a state
    takes the value that holds when it is made. checkpoint_tokens: after so many tokens nodes keep a snapshot, None:
    never. history_bytes: memory for replay, the rest goes to a temporary file. epoch: higher than any that was used
    for sessions of the same names; the time of day by default.
    """

    words_wanted: int | None = None
    checkpoint_tokens: int | None = 256
    history_bytes: int = DEFAULT_HISTORY_BYTES
    timers: Timers = field(default_factory=Timers)
    epoch: int = field(default_factory=lambda: int(time.time()))

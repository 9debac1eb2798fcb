"""The one-time code of a pairing: shown on one machine, typed on the other.

Owns its letters, its life, its tries, and the key made of it. Refuses to know what the key then proves.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable

from ..errors import PairingFailed

CODE_LIFE_S = 300.0
MAX_TRIES = 3
# Crockford's letters: none is taken for another. 8 of 32 are 40 bits; at scrypt's pace nobody walks through them in
# five minutes, not even with a recorded conversation.
_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH = 8
_LOOK_ALIKES = str.maketrans({"O": "0", "I": "1", "L": "1", "-": "", " ": "", "\t": ""})
_SCRYPT_N, _SCRYPT_R, _SCRYPT_MEMORY = 2**14, 8, 64 * 1024**2


def new_code() -> str:
    """A fresh code, as it is shown: "K7QM-2XPD"."""
    letters = "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))
    return f"{letters[:4]}-{letters[4:]}"


def normal_code(typed: str) -> str:
    """A code as it was meant. Raises PairingFailed for what cannot be one."""
    code = typed.strip().upper().translate(_LOOK_ALIKES)
    if len(code) != _LENGTH or not set(code) <= set(_LETTERS):
        raise PairingFailed(
            "this is not a pairing code: it has 8 letters and digits, such as K7QM-2XPD",
            "type the code that `streamoe-node pair` shows",
        )
    return code


def code_key(code: str, salt: bytes) -> bytes:
    """32 bytes from a code, slowly on purpose (about 50 ms)."""
    return hashlib.scrypt(
        normal_code(code).encode(), salt=salt, n=_SCRYPT_N, r=_SCRYPT_R, p=1, maxmem=_SCRYPT_MEMORY, dklen=32
    )


class OneTimeCode:
    """The side that shows the code: how long it lives and how often it may be tried. Any thread."""

    def __init__(self, code: str, now_s: Callable[[], float], life_s: float = CODE_LIFE_S) -> None:
        self.code = code
        self._now_s, self._deadline_s = now_s, now_s() + life_s
        self._tries_left, self._is_used = MAX_TRIES, False
        self._lock = threading.Lock()

    @property
    def left_s(self) -> float:
        """Seconds it still lives; 0 when it is spent."""
        with self._lock:
            return 0.0 if self._is_used or not self._tries_left else max(0.0, self._deadline_s - self._now_s())

    def take_try(self) -> None:
        """Before each look at a proof, so that many at once are no more than three. Raises PairingFailed when spent."""
        with self._lock:
            if self._is_used:
                raise _spent("the code has been used")
            if not self._tries_left:
                raise _spent(f"the code was wrong {MAX_TRIES} times")
            if self._now_s() >= self._deadline_s:
                raise _spent("the code has expired")
            self._tries_left -= 1

    def use(self) -> None:
        """The right code was shown: it never counts again. Raises PairingFailed when another was faster."""
        with self._lock:
            if self._is_used:
                raise _spent("the code has been used")
            self._is_used = True

    @property
    def tries_left(self) -> int:
        """Wrong codes that are still borne."""
        with self._lock:
            return self._tries_left


def _spent(why: str) -> PairingFailed:
    return PairingFailed(why, "start again for a new code: streamoe-node pair")

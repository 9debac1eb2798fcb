"""Waits until a node has run so many tokens of a conversation, and says so at once: when to break something.

    python -m tests.e2e.cluster.watching HOST:PORT TOKENS

A coordinator's first session is its canary, the second its conversation. A process, so that it can be where the node
is: in another network. Refuses to know what is broken.
"""

from __future__ import annotations

import sys
import time

from tests.e2e.cluster.machines import sessions_of

_POLL_S = 0.001


def wait_for(address: str, num_tokens: int) -> int:
    """The position of the second session that appears from now on, once it is num_tokens or more."""
    with sessions_of(address) as ask:
        before, names = {name for name, _, _ in ask()}, list[str]()
        print("watching", flush=True)
        while True:
            for name, position, _ in ask():
                if name not in before and name not in names:
                    names.append(name)
                if len(names) > 1 and name == names[1] and position >= num_tokens:
                    return position
            time.sleep(_POLL_S)


if __name__ == "__main__":
    print(wait_for(sys.argv[1], int(sys.argv[2])), flush=True)

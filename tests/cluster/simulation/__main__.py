"""Replay one seed with its log: python -m tests.cluster.simulation SEED"""

from __future__ import annotations

import sys

from .scenario import run_seed


def main() -> None:
    outcome = run_seed(int(sys.argv[1]), is_told=True)
    print("\n".join(outcome.lines))
    print(f"seed {outcome.seed}: {outcome.fault or 'every promise kept'}")
    raise SystemExit(1 if outcome.fault else 0)


if __name__ == "__main__":
    main()

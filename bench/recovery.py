"""How long an answer stands still when one of its nodes is killed, frozen or cut off, and how it comes back.

    sudo .venv/bin/python -m bench.recovery --out ROWS.csv [--faults kill,freeze,cable,another,here,for-good]

Two real nodes with the embedded model, a real coordinator, each fault at prefill, first, middle and last token, for
each band. `cable` needs root, for it makes a network; the others run on loopback. Says for each whether the tokens are
those of an undisturbed process. A quarter of an hour in all.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streamoe_engine.checkpoint import convert
from streamoe_node.models import embedded_checkpoint
from tests.e2e.cluster.cells import BANDS, Pair
from tests.e2e.cluster.faults import MOMENTS, NUM_TOKENS, Moment, Trial, prompt_of
from tests.e2e.cluster.lan import Lan
from tests.e2e.cluster.machines import Cluster, chat_alone

KINDS = ("kill", "freeze", "cable", "another", "here", "for-good")
COLUMNS = ("fault", "moment", "layers", "position", "noticed_s", "lost_s", "back_s", "total_s", "outcome", "way")


def trials(pair: Pair, kind: str, folder: Path) -> Iterator[Trial]:
    """Every moment and band of one kind of fault; the slowest kind once."""
    if kind == "for-good":
        yield pair.killed_for_good("middle token", 1)
        return

    def another(moment: Moment, band: int) -> Trial:
        with pair.stand_in(band) as other:
            return pair.taken_over(moment, band, other)

    def here(moment: Moment, band: int) -> Trial:
        return pair.opened_here(moment, band, folder)

    run: Callable[[Moment, int], Trial] = {
        "kill": pair.killed, "freeze": pair.frozen, "cable": pair.cut_off, "another": another, "here": here,
    }[kind]  # fmt: skip
    for moment in MOMENTS:
        for band in range(len(BANDS)):
            yield run(moment, band)


def row(trial: Trial, undisturbed: dict[str, Any]) -> dict[str, Any]:
    """A trial as it is written."""
    outcome = trial.error or ("same tokens" if list(trial.tokens or ()) == undisturbed["token_ids"] else "OTHER TOKENS")
    figures = asdict(trial) | {"layers": BANDS[trial.band], "outcome": outcome}
    return {name: round(value, 3) if isinstance(value := figures[name], float) else value for name in COLUMNS}


def main() -> None:
    """Run the trials, print each, write the rows."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", required=True, type=Path)
    made.add_argument("--faults", default=",".join(KINDS))
    asked = made.parse_args()
    with ExitStack() as open_things, asked.out.open("w", newline="", encoding="utf-8") as file:
        home = Path(open_things.enter_context(tempfile.TemporaryDirectory()))
        convert(embedded_checkpoint(), home / "model")
        alone = {
            moment: chat_alone(home / "model", home / "alone", "500MiB", prompt_of(moment), NUM_TOKENS)
            for moment in MOMENTS
        }
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for kind in asked.faults.split(","):
            with ExitStack() as network:
                lan = network.enter_context(Lan()) if kind == "cable" else None
                cluster = network.enter_context(Cluster(home / "model", home / kind))
                pair = Pair(cluster, home / "coordinator", lambda m: alone[m]["usage"]["prompt_tokens"], lan)
                for trial in trials(pair, kind, home / "model"):
                    found = row(trial, alone[trial.moment])
                    writer.writerow(found)
                    file.flush()
                    print("  ".join(f"{'' if value is None else value!s:>12}" for value in found.values()), flush=True)


if __name__ == "__main__":
    main()

"""Run other engines and streamoe alternately under the same kernel memory limit, and write down what they did.

    sudo .venv/bin/python -m bench.peers.run --model-folder MODEL --gguf FILE.gguf --llama-python PEERS/bin/python \\
        --caps 3GiB,4GiB,6GiB --repeats 3

from the checkout's top folder. Every run is a fresh process in a fresh control group, with empty caches where there is
a limit; the engines take turns in changing order. Raw rows go to bench/results/NAME.csv. What goes in and how to read
what comes out: bench/README.md. Needs Linux and root (control groups, dropping caches, loop devices).
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from bench.peers import ceilings, engines, machine, summary
from bench.peers.engines import Engine, Mode
from bench.peers.loop_device import LoopDeviceFailed, loop_device, read_ahead_kb
from bench.peers.rows import ResultsFile, Row, make_row

from streamoe_engine.errors import StreamoeError
from streamoe_engine.sizes import parse_size
from tests.cgroup import run_in_cgroup, unavailable_reason

RESULTS = machine.ROOT / "bench" / "results"
# Sampling costs the engines CPU time; peaks are the kernel's own.
_SAMPLE_S = 0.25
_GRACE_S = 600.0  # for opening and the prompt, beside the limit on decoding


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model-folder", type=Path, help="streamoe's converted model")
    made.add_argument("--gguf", type=Path, help="the same model for llama.cpp")
    made.add_argument("--checkpoint", type=Path, help="the same model for mlx-lm, which runs without a limit only")
    made.add_argument("--llama-python", type=Path, help="the Python that has llama-cpp-python")
    made.add_argument("--caps", default="4GiB", help="sizes, and `none` for no limit (default: %(default)s)")
    made.add_argument("--modes", default="decode", help="decode, prefill256, decode-warm, ... (default: %(default)s)")
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--prompt-tokens", type=int, default=32, help="before the decoded tokens, not timed with them")
    made.add_argument("--tokens", type=int, default=64, help="decoded tokens a run")
    made.add_argument("--limit-s", type=float, default=300.0, help="stop decoding after so long, however few tokens")
    made.add_argument("--read-ahead-kb", type=int, default=128, help="of the loop device that shows the GGUF file")
    made.add_argument("--bare-file", action="store_true", help="give llama.cpp the file itself, with its disk's own")
    made.add_argument("--streamoe-options", default="", metavar="TEXT", help='such as "--chunk 256 --guess none"')
    made.add_argument("--llama-options", default="", metavar="TEXT", help='such as "--repack"')
    made.add_argument("--results", type=Path, default=RESULTS, help="folder of the results (default: bench/results)")
    made.add_argument("--name", help="of the results (default: the date and time)")
    return made


def chosen_engines(asked: argparse.Namespace) -> list[Engine]:
    """The engines whose models are given. Raises ValueError."""
    found = []
    if asked.gguf:
        if not asked.llama_python:
            raise ValueError("--gguf needs --llama-python: the Python that has llama-cpp-python")
        # A virtual environment's Python is a link that must not be followed, or it is outside the environment.
        python = asked.llama_python.absolute()
        found.append(engines.llama_cpp(python, asked.gguf.resolve(), tuple(shlex.split(asked.llama_options))))
    if asked.model_folder:
        found.append(engines.streamoe(asked.model_folder.resolve(), tuple(shlex.split(asked.streamoe_options))))
    if asked.checkpoint:
        found.append(engines.mlx_lm(asked.checkpoint.resolve(), ()))
    if not found:
        raise ValueError("give --model-folder, --gguf or --checkpoint, or several of them")
    if missing := [engine.model for engine in found if not engine.model.exists()]:
        raise ValueError(f"{missing[0]} is missing")
    return found


def turns(found: list[Engine], caps: list[int | None], modes: list[Mode], repeats: int) -> Iterator[tuple]:
    """(mode, cap, repeat, engine) of every run: engines next to each other, in turning order."""
    for repeat in range(repeats):
        for mode in modes:
            for cap in caps:
                for engine in found if repeat % 2 == 0 else reversed(found):
                    if cap is None or not engine.needs_memory:
                        yield mode, cap, repeat, engine


def run_once(engine: Engine, mode: Mode, cap_bytes: int | None, repeat: int, limit_s: float) -> Row:
    """One run in a fresh group; cold under a limit. Without one, caches stay: in memory is what is asked about."""
    key: dict[str, Any] = {"engine": engine.name, "mode": mode.name, "cap_bytes": cap_bytes, "repeat": repeat}
    key["read_ahead_kb"] = read_ahead_kb(engine.model) if engine.maps_file else None
    command, timeout_s = engine.command(mode, cap_bytes, limit_s), limit_s + _GRACE_S
    try:
        run = run_in_cgroup(
            command, cap_bytes, cwd=machine.ROOT, timeout_s=timeout_s, cold=cap_bytes is not None, sample_s=_SAMPLE_S
        )
    except subprocess.TimeoutExpired:
        return Row(**key, version="", status="timeout", note=f"not finished after {timeout_s:.0f} s")
    return make_row(key, run)


def measure(asked: argparse.Namespace, found: list[Engine], caps: list[int | None], modes: list[Mode]) -> list[Row]:
    """Everything that is asked for; rows are printed and written down as they come, and told of in the end."""
    folder, num_threads = _measured_folder(found), os.cpu_count() or 1
    limits = ceilings.measure(folder, num_threads)
    facts = {**machine.describe(folder), "before": str(limits), "command": shlex.join(sys.argv)}
    print("\n".join(f"{name}: {text}" for name, text in facts.items()), flush=True)
    rows: list[Row] = []
    with ExitStack() as stack:
        for at, engine in enumerate(found):
            if engine.maps_file and not asked.bare_file:
                device = stack.enter_context(loop_device(engine.model, asked.read_ahead_kb))
                found[at] = replace(engine, model=device)
        name = asked.name or datetime.now(UTC).strftime("peers-%Y-%m-%d-%H%M%S")
        results = ResultsFile(asked.results / f"{name}.csv", facts)
        stack.callback(results.close)
        try:
            for mode, cap, repeat, engine in turns(found, caps, modes, asked.repeats):
                rows.append(run_once(engine, mode, cap, repeat, asked.limit_s))
                results.add(rows[-1])
                print(summary.run_line(rows[-1]), flush=True)
        finally:
            after = ceilings.measure(folder, num_threads)
            results.remark(f"after: {after}")
            print(f"\n{summary.summary(rows, limits.best(after))}\n\nrows: {asked.results / name}.csv", flush=True)
    return rows


def _measured_folder(found: list[Engine]) -> Path:
    # Where the disk is measured: streamoe's records if there are any.
    folder = next((engine.model for engine in found if engine.name == "streamoe"), found[0].model)
    return folder if folder.is_dir() else folder.parent


def _stop(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def main() -> None:
    """Parse the command line, check that this can be done here, measure."""
    made = parser()
    asked = made.parse_args()
    if sys.platform != "linux" or os.geteuid() != 0:
        made.error("this needs Linux and root: control groups, empty caches and loop devices")
    if reason := unavailable_reason():
        made.error(reason)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        caps = [None if text == "none" else parse_size(text) for text in asked.caps.split(",")]
        modes = [engines.parse_mode(text, asked.prompt_tokens, asked.tokens) for text in asked.modes.split(",")]
        rows = measure(asked, chosen_engines(asked), caps, modes)
    except (ValueError, OSError, LoopDeviceFailed, StreamoeError) as error:
        made.error(str(error))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    raise SystemExit(0 if all(row.status == "ok" for row in rows) else 1)


if __name__ == "__main__":
    main()

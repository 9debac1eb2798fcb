"""streamoe on forced tokens, through the engine's boundary.

    python -m bench.peers.streamoe_run MODEL_FOLDER --budget 4GiB --tokens 64

Opens what `streamoe chat --prompt` opens, in the same order and with the same flags, tokenizer and command line
included, so that the process costs what the real one does.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version

import numpy as np
from bench.peers import forced
from numpy.typing import NDArray

import streamoe_coordinator.cli  # noqa: F401  (for what it costs)
from streamoe_coordinator.text import load_text
from streamoe_engine.band import Band
from streamoe_engine.errors import StreamoeError
from streamoe_engine.manifest import read_manifest
from streamoe_engine.sizes import format_size
from streamoe_node.opening import EngineFlags, band_options


def open_engine(asked: argparse.Namespace) -> forced.Opened:
    """A band of the whole model under asked.budget."""
    _, tokenizer_bytes = load_text(asked.model)
    flags = EngineFlags(
        budget=asked.budget,
        ctx=min(forced.CTX_TOKENS, read_manifest(asked.model).max_context or forced.CTX_TOKENS),
        kv=asked.kv,
        chunk=asked.chunk,
        guess=asked.guess,
        guess_width=asked.guess_width,
        policy=asked.policy,
    )
    band = Band.open(asked.model, band_options(flags, asked.model, tokenizer_bytes, is_embedded=False))
    state, chunk_tokens = band.new_state(), band.plan.chunk_tokens

    def step(ids: NDArray[np.int32]) -> NDArray[np.float32]:
        *firsts, last = [ids[at : at + chunk_tokens] for at in range(0, len(ids), chunk_tokens)]
        for chunk in firsts:
            band.run(state, chunk, "nothing")
        logits = band.run(state, last)
        assert logits is not None
        return logits

    plan = band.plan
    note = (
        f"{plan.slots} slots of {format_size(plan.slot_bytes)}, chunk {plan.chunk_tokens}, guess {plan.guess_width}, "
    )
    note += f"KV {plan.kv}, {plan.compute_dtype}"
    return forced.Opened(f"streamoe {version('streamoe')}", band.manifest.vocab_size, step, note)


if __name__ == "__main__":
    made = forced.parser(__doc__)
    made.add_argument("--budget", required=True)
    for flag in ("--kv", "--guess", "--policy"):
        made.add_argument(flag)
    for flag in ("--chunk", "--guess-width"):
        made.add_argument(flag, type=int)
    try:
        forced.run(made.parse_args(), open_engine)
    except StreamoeError as error:
        raise SystemExit(f"{error.message}; {error.next_step}") from error

"""The engines, and the command of each one's child process.

Owns which module runs an engine, in which Python, and what its options are called. Refuses to know how a command is
run.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from bench.peers.forced import BATCH_TOKENS, CTX_TOKENS

from streamoe_engine.footprint import machine_memory

# Without a limit streamoe is still asked for a cap: this share of what is free, room for the whole model if any has.
_UNLIMITED_SHARE = 0.9
# Random tokens that pick nearly every expert of Qwen3.6's size at least once.
WARMING_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Mode:
    """What is timed: `tokens` decoded one by one after a prompt, or, with none of them, the prompt itself.

    before_tokens: run before all that and not timed, so that what an engine keeps in memory is there.
    """

    name: str
    prompt_tokens: int
    tokens: int
    before_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine with its model. options: passed on to its child as they are. maps_file: reads its model by page
    faults, so that the read-ahead counts. needs_memory: holds the whole model, so that no limit leaves it room."""

    name: str
    python: Path
    module: str
    model: Path
    options: tuple[str, ...] = ()
    maps_file: bool = False
    needs_memory: bool = False

    def command(self, mode: Mode, cap_bytes: int | None, limit_s: float) -> list[str]:
        """The child's command line for a mode; cap_bytes None: no limit."""
        made = [str(self.python), "-m", f"bench.peers.{self.module}", str(self.model)]
        made += ["--prompt-tokens", str(mode.prompt_tokens), "--tokens", str(mode.tokens), "--limit-s", str(limit_s)]
        made += ["--before-tokens", str(mode.before_tokens)]
        if self.name == "streamoe":
            made += ["--budget", f"{cap_bytes or int(machine_memory().available_bytes * _UNLIMITED_SHARE)}B"]
        return [*made, *self.options]


def streamoe(model_folder: Path, options: tuple[str, ...]) -> Engine:
    """This checkout's engine, in the Python that runs the driver."""
    return Engine("streamoe", Path(sys.executable), "streamoe_run", model_folder, options)


def llama_cpp(python: Path, gguf: Path, options: tuple[str, ...]) -> Engine:
    """llama.cpp, in an environment of its own."""
    return Engine("llama.cpp", python, "llama_cpp", gguf, options, maps_file=True)


def mlx_lm(checkpoint: Path, options: tuple[str, ...]) -> Engine:
    """mlx-lm, in the Python that runs the driver."""
    return Engine("mlx-lm", Path(sys.executable), "mlx_lm_run", checkpoint, options, needs_memory=True)


def parse_mode(text: str, prompt_tokens: int, tokens: int) -> Mode:
    """ "decode", or "prefill256" for a prompt of 256 tokens straight after opening; "-warm" behind either: after
    WARMING_TOKENS others. Raises ValueError."""
    what = text.removesuffix("-warm")
    before = WARMING_TOKENS if what != text else 0
    number = what.removeprefix("prefill")
    if what == "decode":
        mode = Mode(text, prompt_tokens, tokens, before)
    elif number != what and number.isdecimal():
        mode = Mode(text, int(number), 0, before)
    else:
        raise ValueError(
            f"'{text}' is no mode: give decode, or prefill with a number of tokens, such as prefill256; -warm behind it"
        )
    if not 1 <= mode.prompt_tokens <= BATCH_TOKENS or before + mode.prompt_tokens + mode.tokens > CTX_TOKENS:
        raise ValueError(f"{text}: a prompt has 1 to {BATCH_TOKENS} tokens, and all together are at most {CTX_TOKENS}")
    return mode

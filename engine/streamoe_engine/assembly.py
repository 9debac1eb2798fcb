"""Putting a band together: what streams, and what computes.

Owns the choice of the computing path. Refuses to know how either path is built.
"""

from __future__ import annotations

from dataclasses import dataclass

from .experts import Recorder
from .guess import Guesser, GuessName
from .head_stream import HeadStream
from .layers.interface import Layers
from .plan_types import Plan
from .policies import PolicyName
from .store import ModelStore
from .streaming import Streaming, open_streaming


@dataclass(frozen=True, slots=True)
class Assembled:
    """A band's working parts. head_stream: the output head, where it is read for every token."""

    layers: Layers
    streaming: Streaming
    head_stream: HeadStream | None


def assemble(
    store: ModelStore,
    plan: Plan,
    policy: PolicyName,
    guess: GuessName | Guesser,
    threads: int,
    reader_threads: int,
    recorder: Recorder | None = None,
) -> Assembled:
    """Build, load and connect the band of `plan`. Raises the store's errors, and ModelFolderError."""
    streaming = open_streaming(store, plan, policy, reader_threads)
    try:
        head = None if plan.streamed_head is None else HeadStream(store, plan.streamed_head, streaming.reader)
        if plan.backend == "kernels":
            from .layers.kernel_build import build_kernel_layers

            layers: Layers = build_kernel_layers(store, plan, streaming, guess, threads, recorder, head)
        else:
            from .layers.mlx_build import build_mlx_layers

            layers = build_mlx_layers(store, plan, streaming, guess, threads, recorder, head)
    except BaseException:
        streaming.reader.close()
        raise
    return Assembled(layers, streaming, head)

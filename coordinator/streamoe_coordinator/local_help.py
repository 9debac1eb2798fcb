"""Layers that this process opens itself, beside or instead of a node's: where the user granted it a cap.

Owns the bands it has opened until it is closed. Refuses to know when they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from streamoe_engine.errors import UsageError
from streamoe_engine.fingerprint import fingerprint
from streamoe_engine.manifest import read_manifest
from streamoe_engine.sizes import parse_size
from streamoe_node.errors import FingerprintMismatch
from streamoe_node.models import resolve_model
from streamoe_node.opening import EngineFlags, band_options
from streamoe_node.rows import GRPC_BYTES
from streamoe_proto.messages import NodeFacts

from .cluster.assembly_words import missing_layers
from .cluster.history import DEFAULT_HISTORY_BYTES
from .cluster.local import LocalBand
from .cluster.ports import Seat
from .text import Text, load_text

# One on its way to a node and one back, each as numbers and as bytes.
_FRAMES = 4


class LocalHelp:
    """Opens one band at most: the cap is for one. Use as a context manager."""

    def __init__(self, flags: EngineFlags, model: Path | None) -> None:
        """flags: with a budget. model: the folder with the layers' files, None: the model that comes along.

        text: the model's, once it is loaded; set it where others load it, for its memory counts once.
        """
        assert flags.budget is not None
        self._flags, self._model = flags, model
        # Chains keep steps for replay: here they share the cap with a band.
        self.history_bytes = min(DEFAULT_HISTORY_BYTES, parse_size(flags.budget) // 16)
        self.text: Text | None = None
        self._band: LocalBand | None = None

    def open(self, layers: tuple[int, int], like: NodeFacts) -> Seat:
        """Layers a..b as the node `like` would serve them. Raises UsageError for a second band, FingerprintMismatch,
        PlanDoesNotFit, and what opening raises."""
        if self._band is not None:
            raise UsageError(
                f"this process has opened layers already, and its cap is for those; {layers[0]}-{layers[1]} are more",
                "start a node for them",
            )
        folder = resolve_model(self._model)
        found = fingerprint(read_manifest(folder))
        if found != like.fingerprint:
            raise FingerprintMismatch(
                f"{folder} is the model {found[:12]}, the nodes have {like.fingerprint[:12]}",
                "give the nodes' model with --model FOLDER",
            )
        flags = replace(
            self._flags, layers=f"{layers[0]}-{layers[1]}", ctx=self._flags.ctx or like.ctx_tokens, kv=like.kv
        )
        tokenizer_bytes = 0
        if self.text is None:
            self.text, tokenizer_bytes = load_text(folder)
        rows = (
            ("steps kept for replay", self.history_bytes),
            ("frames and gRPC", _FRAMES * like.max_frame_bytes + GRPC_BYTES),
        )
        options = band_options(flags, folder, tokenizer_bytes, is_embedded=False, extra_bytes=rows)
        self._band = LocalBand(folder, options)
        return self._band.seat

    def close(self) -> None:
        """Close what was opened."""
        band, self._band = self._band, None
        if band is not None:
            band.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def the_gap(nodes: Iterable[NodeFacts]) -> tuple[int, int] | None:
    """The layers that these nodes lack, where that is one range: what one more band would fill."""
    ranges = missing_layers(nodes)
    return ranges[0] if len(ranges) == 1 else None

"""The wire between a coordinator and a node: encoded frames, in order, unless the seed spoils one.

A wire that is cut tells its ends so, or says nothing, as a pulled cable does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from streamoe_coordinator.cluster.ports import ChannelLost, ChannelTimeout
from streamoe_proto.messages import Failed, FromNode, Open, ToNode
from streamoe_proto.wire import WireError, decode_from_node, decode_to_node, encode_from_node, encode_to_node

from .world import Mailbox, World

if TYPE_CHECKING:
    from streamoe_node.core import Attachment

    from .nodes import SimNode

# What a spoiler makes of a frame: the copies that arrive, each after a delay. None cuts the wire.
Spoiled = list[tuple[float, bytes]] | None
Spoiler = Callable[[bytes], Spoiled]


class _Lost:
    """The last thing in a mailbox: the stream has ended."""

    def __init__(self, cause: str) -> None:
        self.cause = cause


class Wire:
    """One stream. The coordinator's end is a Channel; the node's end speaks to its core."""

    def __init__(self, world: World, node: SimNode, latency_s: float, spoil: Spoiler) -> None:
        self._world, self.node, self._latency_s, self._spoil = world, node, latency_s, spoil
        self._inbox: Mailbox[bytes | _Lost] = Mailbox(world)
        self._lost: _Lost | None = None
        self._due_s = [0.0, 0.0]  # when the last frame to the node, and from it, arrives
        self._is_cut = False
        self._is_end_here = False
        self.is_closed = False  # the coordinator's end
        self.is_ended = False  # the node's end
        self._attachment: Attachment | None = None
        self._num_failed_opens = 0

    # ---- the coordinator's end: a Channel

    def send(self, frame: ToNode) -> None:
        """Onto the wire."""
        if self._lost is not None or self.is_closed:
            raise ChannelLost(self._lost.cause if self._lost else "the stream is closed")
        if self._world.is_told:
            self._world.tell(f"-> {self.node.name}: {describe(frame)}")
        self._carry(0, encode_to_node(frame), self._at_node)

    def receive(self, timeout_s: float) -> FromNode:
        """Off the wire."""
        if self.is_closed:
            raise ChannelLost("the stream is closed")
        if self._lost is not None:
            raise ChannelLost(self._lost.cause)
        item = self._inbox.get(timeout_s)
        if item is None:
            raise ChannelTimeout
        if isinstance(item, _Lost):
            self._lost = item
            raise ChannelLost(item.cause)
        try:
            frame = decode_from_node(item)
        except WireError as error:
            self._lost = _Lost(f"a damaged frame came: {error}")
            raise ChannelLost(self._lost.cause) from None
        if self._world.is_told:
            self._world.tell(f"<- {self.node.name}: {describe(frame)}")
        return frame

    @property
    def is_lost(self) -> bool:
        """Whether the coordinator's end knows."""
        return self._lost is not None or self._is_end_here

    def close(self) -> None:
        """The node learns of it behind the frames on their way."""
        if not self.is_closed:
            self.is_closed = True
            self._carry_end(0, self._detached)

    # ---- what happens to both

    def cut(self, cause: str, *, is_silent: bool, node_learns_s: float = 0.0) -> None:
        """Nothing arrives any more. is_silent: the coordinator is not told. The node is told after node_learns_s."""
        if self._is_cut:
            return
        self._is_cut = True
        self._world.tell(f"wire to {self.node.name} cut: {cause}{' (silently)' if is_silent else ''}")
        if not is_silent:
            self._world.at(self._latency_s, self._lose, cause)
        self._world.at(node_learns_s, self.node.when_awake, self._detached)

    def forget_node(self, cause: str, *, is_silent: bool) -> None:
        """The node's process is gone."""
        self._is_cut = self.is_ended = True
        if not is_silent:
            self._world.at(self._latency_s, self._lose, cause)

    # ---- the node's end

    def _at_node(self, data: bytes) -> None:
        if self.is_ended or self.node.core is None:
            return
        try:
            frame = decode_to_node(data)
        except WireError as error:
            self._from_node(Failed("bad_frame", str(error), retryable=True))
            if self._attachment is None:
                self._end()
            return
        if self._attachment is not None:
            self._attachment.receive(frame)
        elif isinstance(frame, Open):
            self.node.wires[self] = None
            self._attachment = self.node.core.attach(frame, self._from_node, self._end)
        else:
            self._from_node(Failed("bad_frame", "the first frame opens a session", retryable=True))
            self._end()
        self.node.kick()

    def _from_node(self, frame: FromNode) -> None:
        if not self.is_ended:
            self._carry(1, encode_from_node(frame), self._inbox.put)

    def _end(self) -> None:
        self.is_ended = True
        self.node.wires.pop(self, None)
        self._carry_end(1, lambda: self._lose("the node ended the stream"))

    def _lose(self, cause: str) -> None:
        self._is_end_here = True
        self._inbox.put(_Lost(cause))

    def _detached(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self.node.wires.pop(self, None)
            if self._attachment is not None:
                self._attachment.detach()
                self.node.kick()

    # ---- carrying

    def _carry(self, way: int, data: bytes, arrive: Callable[[bytes], None]) -> None:
        if self._is_cut:
            return
        copies = self._spoil(data)
        if copies is None:
            self.cut("connection reset", is_silent=False)
            return
        for delay_s, copy in copies:
            due_s = max(self._due_s[way], self._world.now_s + self._latency_s + delay_s)
            self._due_s[way] = due_s
            self._world.at(due_s - self._world.now_s, self._arrive, way, copy, arrive)

    def _arrive(self, way: int, data: bytes, arrive: Callable[[bytes], None]) -> None:
        if self._is_cut:
            return
        if way == 0:
            self.node.when_awake(lambda: arrive(data))
        else:
            arrive(data)

    def _carry_end(self, way: int, arrive: Callable[[], None]) -> None:
        if self._is_cut:
            return
        due_s = max(self._due_s[way], self._world.now_s + self._latency_s)
        self._due_s[way] = due_s
        self._world.at(due_s - self._world.now_s, self._arrive, way, b"", lambda _: arrive())


def describe(frame: ToNode | FromNode) -> str:
    """A frame in a line, arrays by their shapes."""
    parts = []
    for name in getattr(frame, "__slots__", ()):
        value = getattr(frame, name)
        if name in ("inputs", "output"):
            value = getattr(value, "shape", value if value is None else "words")
        elif isinstance(value, bytes):
            value = value.hex()[:6]
        if name != "timing":
            parts.append(f"{name}={value}")
    return f"{type(frame).__name__} {' '.join(parts)}"

"""A node's facts and their message: layers inclusive here, half-open on the wire.

Owns the translation. Raises WireError for a message that no node of this protocol would send.
"""

from __future__ import annotations

from typing import Any, get_args

from .messages import NodeFacts, NodeState, PlanRow
from .v1 import common_pb2, node_pb2
from .wire import WireError

_STATES: dict[NodeState, Any] = {
    name: common_pb2.NodeState.Value(f"NODE_STATE_{name.upper()}") for name in get_args(NodeState)
}
_STATE_NAMES = {value: name for name, value in _STATES.items()}
_OTHER = ("state", "first_layer", "last_layer", "plan")
_SAME = [name for name in NodeFacts.__dataclass_fields__ if name not in _OTHER]


def state_to_wire(state: NodeState) -> Any:
    """The enum's value."""
    return _STATES[state]


def state_from_wire(value: int) -> NodeState:
    """The state. Raises WireError."""
    if value not in _STATE_NAMES:
        raise WireError(f"node state {value} is not known")
    return _STATE_NAMES[value]


def rows_to_wire(rows: tuple[PlanRow, ...]) -> list[common_pb2.PlanRow]:
    """A plan's rows."""
    return [common_pb2.PlanRow(name=row.name, num_bytes=row.num_bytes, why=row.why) for row in rows]


def facts_to_wire(facts: NodeFacts) -> node_pb2.NodeInfo:
    """The message of a node's facts."""
    return node_pb2.NodeInfo(
        **{name: getattr(facts, name) for name in _SAME},
        state=_STATES[facts.state],
        layers=common_pb2.Layers(first=facts.first_layer, end=facts.last_layer + 1),
        plan=rows_to_wire(facts.plan),
    )


def facts_from_wire(info: node_pb2.NodeInfo) -> NodeFacts:
    """The facts in a message. Raises WireError."""
    if not info.layers.first < info.layers.end <= info.num_layers:
        raise WireError(f"layers {info.layers.first} to {info.layers.end} of {info.num_layers} cannot be")
    return NodeFacts(
        **{name: getattr(info, name) for name in _SAME},
        state=state_from_wire(info.state),
        first_layer=info.layers.first,
        last_layer=info.layers.end - 1,
        plan=tuple(PlanRow(row.name, row.num_bytes, row.why) for row in info.plan),
    )

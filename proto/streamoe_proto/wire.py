"""Frames of a band's stream and their bytes.

Owns the encoding: little-endian numbers, lengths checked before use, and a CRC-32C as the last field of each message.
All that can be wrong with bytes from outside is a WireError. Refuses to know connections.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_args

import google_crc32c
import numpy as np
from google.protobuf.message import DecodeError, Message

from . import messages as m
from .channel_options import MAX_FRAME_BYTES
from .v1 import band_pb2, common_pb2

HASH_BYTES = 8
_CRC_TAG = bytes([15 << 3 | 5])  # field 15, fixed32
_INT32, _FLOAT32 = np.dtype("<i4"), np.dtype("<f4")
_MAX_TOKENS = 1 << 31

_WANTS: dict[m.StepWant, Any] = {
    "ack": band_pb2.WANT_ACK,
    "hidden": band_pb2.WANT_HIDDEN,
    "top_k": band_pb2.WANT_TOP_K,
    "logits": band_pb2.WANT_LOGITS,
}
_WANT_NAMES = {value: name for name, value in _WANTS.items()}
_CODES: dict[m.FailureCode, Any] = {
    name: common_pb2.FailureCode.Value(f"FAILURE_CODE_{name.upper()}") for name in get_args(m.FailureCode)
}
_CODE_NAMES = {value: name for name, value in _CODES.items()}
_Pb = TypeVar("_Pb", bound=Message)


class WireError(ValueError):
    """Raised for bytes that are no frame, and for a frame that says something impossible."""


class ProtocolDiffers(WireError):
    """Raised for an Open whose major version is not ours."""


def encode_to_node(frame: m.ToNode) -> bytes:
    """The bytes of a RunRequest."""
    request = band_pb2.RunRequest()
    if isinstance(frame, m.Open):
        request.open.CopyFrom(
            band_pb2.Open(
                session=frame.session,
                epoch=frame.epoch,
                fingerprint=frame.fingerprint,
                position=frame.position,
                prefix_hash=frame.prefix_hash,
                protocol_major=m.PROTOCOL_MAJOR,
                protocol_minor=m.PROTOCOL_MINOR,
            )
        )
    elif isinstance(frame, m.Step):
        step = request.step
        step.seq, step.position, step.want, step.top_k = frame.seq, frame.position, _WANTS[frame.want], frame.top_k
        step.prefix_hash, step.next_hash = frame.prefix_hash, frame.next_hash
        _put_inputs(step.inputs, frame.inputs)
    elif isinstance(frame, m.Trim):
        request.trim.position = frame.position
    elif isinstance(frame, m.Cancel):
        request.cancel.seq = frame.seq
    elif isinstance(frame, m.Checkpoint):
        request.checkpoint.SetInParent()
    else:
        request.close.SetInParent()
    return _sealed(request)


def decode_to_node(data: bytes) -> m.ToNode:
    """The frame in a RunRequest. Raises WireError, and ProtocolDiffers for an Open."""
    request = _opened(data, band_pb2.RunRequest)
    kind = request.WhichOneof("frame")
    if kind == "step":
        return _step(request.step)
    if kind == "open":
        return _open(request.open)
    if kind == "trim":
        return m.Trim(_count(request.trim.position))
    if kind == "cancel":
        return m.Cancel(request.cancel.seq)
    if kind == "checkpoint":
        return m.Checkpoint()
    if kind == "close":
        return m.Close()
    raise WireError("a request without a frame")


def encode_from_node(frame: m.FromNode) -> bytes:
    """The bytes of a RunResponse."""
    response = band_pb2.RunResponse()
    if isinstance(frame, m.Result):
        _put_result(response.result, frame)
    elif isinstance(frame, m.Progress):
        progress = response.progress
        progress.seq, progress.layer, progress.read_bytes = frame.seq, frame.layer, frame.read_bytes
    elif isinstance(frame, m.Ready):
        response.ready.CopyFrom(
            band_pb2.Ready(
                position=frame.position,
                prefix_hash=frame.prefix_hash,
                last_seq=frame.last_seq,
                credits=frame.credits,
                max_frame_bytes=frame.max_frame_bytes,
            )
        )
    elif isinstance(frame, m.Credit):
        response.credit.count = frame.count
    elif isinstance(frame, m.Checkpointed):
        kept = response.checkpointed
        kept.position, kept.snapshot_id, kept.num_bytes = frame.position, frame.snapshot_id, frame.num_bytes
    else:
        response.failed.CopyFrom(
            band_pb2.Failed(
                code=_CODES[frame.code],
                message=frame.message,
                next_step=frame.next_step,
                seq=frame.seq,
                from_pos=frame.from_pos,
                retryable=frame.retryable,
            )
        )
    return _sealed(response)


def decode_from_node(data: bytes) -> m.FromNode:
    """The frame in a RunResponse. Raises WireError."""
    response = _opened(data, band_pb2.RunResponse)
    kind = response.WhichOneof("frame")
    if kind == "result":
        return _result(response.result)
    if kind == "progress":
        return m.Progress(response.progress.seq, response.progress.layer, response.progress.read_bytes)
    if kind == "ready":
        ready = response.ready
        return m.Ready(
            _count(ready.position), _hash(ready.prefix_hash), ready.last_seq, ready.credits, ready.max_frame_bytes
        )
    if kind == "credit":
        return m.Credit(response.credit.count)
    if kind == "checkpointed":
        kept = response.checkpointed
        return m.Checkpointed(_count(kept.position), kept.snapshot_id, kept.num_bytes)
    if kind == "failed":
        failed = response.failed
        if failed.code not in _CODE_NAMES:
            raise WireError(f"failure code {failed.code} is not known")
        return m.Failed(
            _CODE_NAMES[failed.code],
            failed.message,
            failed.next_step,
            failed.seq,
            _count(failed.from_pos),
            failed.retryable,
        )
    raise WireError("a response without a frame")


def _sealed(message: Message) -> bytes:
    body = message.SerializeToString()
    return b"".join((body, _CRC_TAG, google_crc32c.value(body).to_bytes(4, "little")))


def _opened(data: bytes, kind: type[_Pb]) -> _Pb:
    if len(data) > MAX_FRAME_BYTES:
        raise WireError(f"a frame of {len(data)} B is over the limit of {MAX_FRAME_BYTES} B")
    if len(data) < 5 or data[-5:-4] != _CRC_TAG:
        raise WireError("a frame without its checksum")
    if google_crc32c.value(data[:-5]) != int.from_bytes(data[-4:], "little"):
        raise WireError(f"a frame of {len(data)} B with a wrong checksum")
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise WireError(f"a frame that cannot be read: {error}") from error


def _open(frame: band_pb2.Open) -> m.Open:
    if frame.protocol_major != m.PROTOCOL_MAJOR:
        raise ProtocolDiffers(
            f"the peer speaks protocol {frame.protocol_major}.{frame.protocol_minor}, "
            f"this one {m.PROTOCOL_MAJOR}.{m.PROTOCOL_MINOR}"
        )
    if not frame.session or len(frame.session) > 200:
        raise WireError("a session's name has 1 to 200 characters")
    return m.Open(frame.session, frame.epoch, frame.fingerprint, _count(frame.position), _hash(frame.prefix_hash))


def _step(frame: band_pb2.Step) -> m.Step:
    if frame.want not in _WANT_NAMES:
        raise WireError(f"a step wants {frame.want}, which is not known")
    if frame.seq < 1:
        raise WireError("a step's number is at least 1")
    inputs = frame.inputs
    if inputs.kind not in (band_pb2.KIND_TOKENS, band_pb2.KIND_HIDDEN):
        raise WireError(f"a step's inputs are of kind {inputs.kind}")
    return m.Step(
        frame.seq,
        _count(frame.position),
        _array(inputs),
        _WANT_NAMES[frame.want],
        _hash(frame.prefix_hash),
        _hash(frame.next_hash),
        frame.top_k,
    )


def _put_inputs(numbers: band_pb2.Numbers, inputs: np.ndarray) -> None:
    if inputs.ndim == 1:
        _put(numbers, band_pb2.KIND_TOKENS, len(inputs), 1, inputs, _INT32)
    else:
        _put(numbers, band_pb2.KIND_HIDDEN, inputs.shape[0], inputs.shape[1], inputs, _FLOAT32)


def _put(numbers: band_pb2.Numbers, kind: Any, rows: int, columns: int, data: np.ndarray, dtype: Any) -> None:
    numbers.kind, numbers.rows, numbers.columns = kind, rows, columns
    numbers.data = np.ascontiguousarray(data, dtype=dtype).tobytes()


def _array(numbers: band_pb2.Numbers) -> np.ndarray:
    """(rows,) int32, (rows, columns) float32 or (columns,) float32; read-only."""
    dtype = _INT32 if numbers.kind == band_pb2.KIND_TOKENS else _FLOAT32
    wanted = numbers.rows * numbers.columns * 4
    if len(numbers.data) != wanted:
        raise WireError(f"{numbers.rows} x {numbers.columns} numbers take {wanted} B, {len(numbers.data)} B came")
    array = np.frombuffer(numbers.data, dtype=dtype)
    if numbers.kind == band_pb2.KIND_TOKENS and numbers.columns != 1:
        raise WireError(f"token ids in {numbers.columns} columns")
    if numbers.kind == band_pb2.KIND_LOGITS and numbers.rows != 1:
        raise WireError(f"logits in {numbers.rows} rows")
    return array.reshape(numbers.rows, numbers.columns) if numbers.kind == band_pb2.KIND_HIDDEN else array


def _put_result(message: band_pb2.Result, frame: m.Result) -> None:
    message.seq, message.position = frame.seq, frame.position
    output = frame.output
    if output is None:
        message.output.kind = band_pb2.KIND_NONE
    elif isinstance(output, m.TopWords):
        numbers, ids, logits = message.output, output.ids, output.logits
        numbers.kind, numbers.rows, numbers.columns = band_pb2.KIND_TOP_K, len(ids), 1
        numbers.data = ids.astype(_INT32).tobytes() + logits.astype(_FLOAT32).tobytes()
        message.log_sum_exp = output.log_sum_exp
    elif output.ndim == 2:
        _put(message.output, band_pb2.KIND_HIDDEN, output.shape[0], output.shape[1], output, _FLOAT32)
    else:
        _put(message.output, band_pb2.KIND_LOGITS, 1, len(output), output, _FLOAT32)
    timing, told = frame.timing, message.timing
    told.queue_us, told.compute_us = round(timing.queue_s * 1e6), round(timing.compute_s * 1e6)
    told.wait_us = round(timing.wait_s * 1e6)
    told.read_bytes, told.picks, told.hits = timing.read_bytes, timing.picks, timing.hits


def _result(message: band_pb2.Result) -> m.Result:
    kind = message.output.kind
    output: np.ndarray | m.TopWords | None
    if kind == band_pb2.KIND_NONE:
        output = None
    elif kind == band_pb2.KIND_TOP_K:
        output = _top_words(message)
    elif kind in (band_pb2.KIND_HIDDEN, band_pb2.KIND_LOGITS):
        output = _array(message.output)
    else:
        raise WireError(f"a result of kind {kind}")
    told = message.timing
    timing = m.Timing(
        told.queue_us / 1e6, told.compute_us / 1e6, told.wait_us / 1e6, told.read_bytes, told.picks, told.hits
    )
    return m.Result(message.seq, _count(message.position), output, timing)


def _top_words(message: band_pb2.Result) -> m.TopWords:
    rows, data = message.output.rows, message.output.data
    if len(data) != 8 * rows or not rows:
        raise WireError(f"{rows} words take {8 * rows} B, {len(data)} B came")
    ids, logits = np.frombuffer(data, _INT32, rows), np.frombuffer(data, _FLOAT32, rows, 4 * rows)
    return m.TopWords(ids, logits, message.log_sum_exp)


def _hash(data: bytes) -> bytes:
    if len(data) != HASH_BYTES:
        raise WireError(f"a prefix hash has {HASH_BYTES} bytes, not {len(data)}")
    return data


def _count(value: int) -> int:
    if value >= _MAX_TOKENS:
        raise WireError(f"{value} tokens cannot be")
    return value

"""The errors a user can meet, each with the numbers, the place and the next step.

StreamoeError
├── UsageError                 a value on the command line or in a call cannot be meant      (exit 2)
├── PlanDoesNotFit             the cap is smaller than what must be held                     (exit 3)
├── CheckpointError            a source checkpoint cannot be used
│   ├── CheckpointIncomplete   a shard or a tensor is missing or cut short
│   ├── CheckpointMismatch     the configuration and the tensors disagree
│   └── ModelNotSupported      no reader for this architecture or number format
├── ConversionFailed           writing the model folder did not work (disk full, not writable)
├── ModelFolderError           a converted model folder cannot be opened
│   ├── NotAModelFolder        no manifest here
│   ├── FormatVersionUnknown   written by another version of streamoe
│   ├── ModelFileMissing       a file the manifest names is not there
│   ├── ModelFileWrongSize     a file is shorter or longer than the manifest says
│   └── ModelFileCorrupt       a file's SHA-256 is not the manifest's
├── TextError                  tokens cannot become text, or text tokens
│   ├── TokenizerUnusable      the tokenizer's files are missing or cannot be read
│   └── ChatTemplateUnusable   the model has no chat template, or it fails on this conversation
├── ReadFailed                 the operating system refused a read of an expert or a tensor
├── ContextFull                a prompt or an answer would pass the planned context
├── StateLost                  an error stopped a step midway; that sequence cannot go on
├── SnapshotError              a saved state cannot be loaded
│   ├── SnapshotUnusable       its bytes are cut short, altered or no snapshot
│   └── SnapshotMismatch       it is of another model, format or place
├── NonFiniteLogits            the model produced NaN or infinity; no token is made of it
├── MeasurementFailed          a process that measures one configuration ended with an error
├── TraceUnusable              a recorded trace of routing cannot be read or written
└── PlatformUnsupported        this machine lacks something the engine cannot do without

Owns the wording rule: what happened with its figures, then what to do. `assert` is for our own mistakes.
"""

from __future__ import annotations

from pathlib import Path


class StreamoeError(Exception):
    """Base of all errors meant for a user.

    message: one sentence with the figure and the place. next_step: one thing to do about it, or "".
    """

    exit_code = 1

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    @property
    def code(self) -> str:
        """A stable name for scripts: the class name."""
        return type(self).__name__

    def __str__(self) -> str:
        return f"{self.message}\n{self.next_step}" if self.next_step else self.message


class UsageError(StreamoeError):
    """Raised when a given value cannot be what the user meant."""

    exit_code = 2


class PlanDoesNotFit(StreamoeError):
    """Raised by the planner when the fixed rows and the smallest pool do not fit the cap.

    needed_bytes: the smallest cap that would do. cap_bytes: what was granted.
    """

    exit_code = 3

    def __init__(self, message: str, next_step: str, *, needed_bytes: int, cap_bytes: int) -> None:
        super().__init__(message, next_step)
        self.needed_bytes = needed_bytes
        self.cap_bytes = cap_bytes

    @property
    def short_bytes(self) -> int:
        """How much is missing, in bytes."""
        return self.needed_bytes - self.cap_bytes


class CheckpointError(StreamoeError):
    """Raised when a source checkpoint cannot be used."""


class CheckpointIncomplete(CheckpointError):
    """Raised when a shard or a tensor is missing or shorter than its header says."""


class CheckpointMismatch(CheckpointError):
    """Raised when config.json and the tensors disagree; names the tensor and both shapes."""


class ModelNotSupported(CheckpointError):
    """Raised when the architecture, or a number format of it, has no reader here."""


class ConversionFailed(StreamoeError):
    """Raised when the model folder cannot be written."""


class ModelFolderError(StreamoeError):
    """Raised when a converted model folder cannot be opened."""


class NotAModelFolder(ModelFolderError):
    """Raised when a path has no manifest."""


class FormatVersionUnknown(ModelFolderError):
    """Raised when the manifest's format version is not this program's."""


class ModelFileMissing(ModelFolderError):
    """Raised when a file that the manifest names is not there."""


class ModelFileWrongSize(ModelFolderError):
    """Raised when a file's size differs from the manifest's."""


class ModelFileCorrupt(ModelFolderError):
    """Raised when a file's SHA-256 differs from the manifest's."""


class TextError(StreamoeError):
    """Raised when a model folder's tokenizer or chat template cannot be used."""


class TokenizerUnusable(TextError):
    """Raised when tokenizer.json, or a configuration beside it, is missing or cannot be read."""


class ChatTemplateUnusable(TextError):
    """Raised when a model has no chat template, or the template fails on a conversation."""


class ReadFailed(StreamoeError):
    """Raised when the operating system refuses or cuts short a read."""

    def __init__(self, path: Path, offset: int, length: int, cause: str) -> None:
        super().__init__(
            f"reading {length} B at offset {offset} of {path} failed: {cause}",
            f"check the disk and the file (streamoe verify {path.parent.parent}), then try again",
        )
        self.path, self.offset, self.length = path, offset, length


class ContextFull(StreamoeError):
    """Raised before any computing when tokens would pass the planned context."""

    def __init__(self, needed_tokens: int, ctx_tokens: int) -> None:
        super().__init__(
            f"{needed_tokens} tokens do not fit the planned context of {ctx_tokens}",
            f"open with --ctx {needed_tokens} or more, or shorten the conversation",
        )
        self.needed_tokens, self.ctx_tokens = needed_tokens, ctx_tokens


class StateLost(StreamoeError):
    """Raised when a sequence is run on after an error stopped one of its steps: recurrent state cannot rewind."""

    def __init__(self, position: int) -> None:
        super().__init__(
            f"this sequence was stopped by an error after {position} tokens and its state is not whole",
            "start a new conversation; the tokens so far can be run again",
        )


class SnapshotError(StreamoeError):
    """Raised when a saved state cannot be loaded."""


class SnapshotUnusable(SnapshotError):
    """Raised when a stream is no snapshot, ends early, goes on too long, or is not what was written."""


class SnapshotMismatch(SnapshotError):
    """Raised when a snapshot is whole, but of another model, KV format, backend, position or other layers."""


class NonFiniteLogits(StreamoeError):
    """Raised when logits hold NaN or infinity, instead of choosing a token from them."""

    def __init__(self, position: int) -> None:
        super().__init__(
            f"the model's logits at position {position} are not finite numbers",
            "the model's files or this machine's arithmetic are at fault: run `streamoe verify` and `streamoe doctor`",
        )
        self.position = position


class MeasurementFailed(StreamoeError):
    """Raised when a measuring process ends with an error: its message and next step, or its exit code."""


class TraceUnusable(StreamoeError):
    """Raised when a file is no trace, one of another format, or cannot be read or written."""


class PlatformUnsupported(StreamoeError):
    """Raised when this machine lacks something the engine needs."""

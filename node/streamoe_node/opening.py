"""From flags to an open band: model folder, cap, options.

Owns the order in which these are opened: all that costs memory comes before the plan, so that it is counted.
Refuses to know what is done with the band.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamoe_engine.errors import PlanDoesNotFit, UsageError
from streamoe_engine.manifest import read_manifest
from streamoe_engine.sizes import MIB, format_size, parse_size, round_up, size_argument

from .config import read_config
from .flags import check_word, parse_layers

# Without --budget the embedded model gets its smallest cap and room for about a third of its experts, so that
# a first look shows streaming.
EMBEDDED_HOT_BYTES = 11 * MIB

if TYPE_CHECKING:
    from streamoe_engine.band import BandOptions


@dataclass(frozen=True, slots=True)
class EngineFlags:
    """What the command line says of the band, as typed; None where it says nothing."""

    budget: str | None = None
    ctx: int | None = None
    kv: str | None = None
    layers: str | None = None
    chunk: int | None = None
    guess: str | None = None
    guess_width: int | None = None
    policy: str | None = None
    reader_threads: int | None = None
    threads: int | None = None
    backend: str | None = None
    head: str | None = None
    sequences: int | None = None


def band_options(
    flags: EngineFlags,
    folder: Path,
    tokenizer_bytes: int,
    *,
    is_embedded: bool,
    extra_bytes: tuple[tuple[str, int], ...] = (),
) -> BandOptions:
    """The engine's options: flags, then the user's configuration file, then the engine's defaults.

    extra_bytes: see BandOptions.
    Raises UsageError for a value that is none, and for a missing cap, with the smallest.
    """
    from streamoe_engine.band import BACKENDS, BandOptions
    from streamoe_engine.guess import GUESS_NAMES
    from streamoe_engine.kv.formats import KV_ELEMENT_BYTES
    from streamoe_engine.plan_head import HEAD_CHOICES
    from streamoe_engine.plan_types import DEFAULT_CTX_TOKENS
    from streamoe_engine.policies import POLICY_NAMES

    check_word("--kv", flags.kv, tuple(KV_ELEMENT_BYTES))
    config = read_config()
    guess = flags.guess or config.get("guess")
    check_word("--guess", guess, GUESS_NAMES)
    check_word("--policy", flags.policy, POLICY_NAMES)
    check_word("--backend", flags.backend, BACKENDS)
    check_word("--head", flags.head, HEAD_CHOICES)
    most = read_manifest(folder).max_context or DEFAULT_CTX_TOKENS
    given: dict[str, Any] = {
        "ctx_tokens": min(DEFAULT_CTX_TOKENS, most) if flags.ctx is None else flags.ctx,
        "kv": flags.kv,
        "layers": None if flags.layers is None else parse_layers(flags.layers),
        "chunk_tokens": flags.chunk,
        "guess": guess,
        "guess_width": config.get("guess_width") if flags.guess_width is None else flags.guess_width,
        "policy": flags.policy,
        "reader_threads": flags.reader_threads or config.get("reader_threads"),
        "threads": flags.threads,
        "backend": flags.backend,
        "head": flags.head,
        "sequences": flags.sequences,
        "extra_bytes": extra_bytes,
        "tokenizer_bytes": tokenizer_bytes,
    }
    options = BandOptions(1, **{name: value for name, value in given.items() if value is not None})
    if flags.budget is not None:
        return replace(options, budget_bytes=parse_size(flags.budget))
    if not is_embedded:
        smallest = smallest_budget(folder, options)
        raise UsageError(
            "--budget is missing: the cap on all memory of this process",
            f"the smallest that fits is --budget {size_argument(smallest)} ({format_size(smallest)}); "
            "more keeps more experts in memory",
        )
    resident = options if options.head != "auto" else replace(options, head="resident")
    return replace(options, budget_bytes=round_up(smallest_budget(folder, resident) + EMBEDDED_HOT_BYTES, MIB))


def smallest_budget(folder: Path, options: BandOptions) -> int:
    """The smallest cap, in bytes, at which these options fit now, in this process."""
    from streamoe_engine.band import plan_for

    try:
        plan = plan_for(folder, replace(options, budget_bytes=1))
    except PlanDoesNotFit as error:
        return error.needed_bytes
    raise AssertionError(f"a plan fits into {plan.budget_bytes} B")

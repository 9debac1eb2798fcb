"""`streamoe-node`'s options, each defined once: name, environment variable, help, panel.

Owns the words a user types. Refuses to know what they do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

MEMORY, NETWORK, ENGINE, OUTPUT = "Memory", "Network", "Engine", "Output"


def _option(*names: str, panel: str, text: str, metavar: str | None = None, least: int | None = None) -> Any:
    variable = "STREAMOE_" + names[0].split("/")[0].strip("-").upper().replace("-", "_")
    return typer.Option(*names, envvar=variable, help=text, rich_help_panel=panel, metavar=metavar, min=least)


Model = Annotated[
    Path | None,
    typer.Option(
        "--model",
        envvar="STREAMOE_MODEL",
        help="A converted model folder, or a checkpoint to convert. Left out: the small model that comes along.",
        show_default=False,
        rich_help_panel=MEMORY,
        metavar="FOLDER",
    ),
]
Layers = Annotated[
    str | None, _option("--layers", panel=MEMORY, metavar="A-B", text="The band: layers A to B, both included.")
]
Budget = Annotated[
    str | None,
    _option("--budget", panel=MEMORY, metavar="SIZE", text="The cap on all of this process's memory: 4GiB, 4GB."),
]
Ctx = Annotated[
    int | None, _option("--ctx", panel=MEMORY, metavar="TOKENS", text="Tokens a session may have; 4096 if left out.")
]
Kv = Annotated[str | None, _option("--kv", panel=MEMORY, metavar="f32|f16|bf16", text="How keys and values are kept.")]
Chunk = Annotated[int | None, _option("--chunk", panel=MEMORY, metavar="TOKENS", text="Prompt tokens run at once.")]
MaxSessions = Annotated[
    int,
    _option("--max-sessions", panel=MEMORY, metavar="N", least=1, text="Conversations held at once, each planned for."),
]
StepTokens = Annotated[
    int | None,
    _option(
        "--step-tokens",
        panel=MEMORY,
        metavar="N",
        least=1,
        text="Tokens of the largest step; left out: up to 2048, as the cap allows.",
    ),
]
Yes = Annotated[bool, _option("--yes", panel=MEMORY, text="Convert a checkpoint without asking.")]

Host = Annotated[
    str | None,
    _option(
        "--host",
        panel=NETWORK,
        metavar="ADDRESS",
        text="Where to listen; left out: 127.0.0.1, or every interface once the node is paired.",
    ),
]
Port = Annotated[int, _option("--port", panel=NETWORK, metavar="PORT", least=0, text="The port; 0: a free one.")]
Name = Annotated[
    str | None, _option("--name", panel=NETWORK, metavar="NAME", text="What to call this node; left out: the host.")
]
InsecureLan = Annotated[
    bool, _option("--insecure-lan", panel=NETWORK, text="Listen on a private network without certificates.")
]
Announce = Annotated[
    bool,
    typer.Option(
        "--announce/--no-announce",
        envvar="STREAMOE_ANNOUNCE",
        help="Be found by mDNS (Bonjour).",
        rich_help_panel=NETWORK,
    ),
]
Snapshots = Annotated[
    Path | None,
    _option("--snapshots", panel=NETWORK, metavar="FOLDER", text="Where sessions' snapshots are kept."),
]

Guess = Annotated[
    str | None,
    _option(
        "--guess",
        panel=ENGINE,
        metavar="auto|cross-layer|previous-token|none",
        text="What decides the experts read early. It never changes the tokens.",
    ),
]
GuessWidth = Annotated[
    int | None, _option("--guess-width", panel=ENGINE, metavar="EXPERTS", text="Experts read early in a layer.")
]
Policy = Annotated[
    str | None,
    _option("--policy", panel=ENGINE, metavar="next-use|lru|lfu|sampled", text="Which experts stay in the hot tier."),
]
ReaderThreads = Annotated[
    int | None, _option("--reader-threads", panel=ENGINE, metavar="N", least=1, text="Threads that read experts.")
]
Threads = Annotated[
    int | None,
    _option("--threads", panel=ENGINE, metavar="N", least=1, text="Threads that compute; one a core if left out."),
]
Backend = Annotated[str | None, _option("--backend", panel=ENGINE, metavar="auto|mlx|kernels", text="What computes.")]

AsJson = Annotated[bool, _option("--json", panel=OUTPUT, text="JSON lines on stdout: plan, loading, ready, draining.")]
Supervised = Annotated[
    bool,
    typer.Option(
        "--supervised",
        help="Watch the engine from a small parent process, which says by which signal it ended.",
        rich_help_panel=OUTPUT,
    ),
]

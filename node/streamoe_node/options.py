"""`streamoe-node`'s own options, each defined once; those that other command lines have too are in shared_options.

Owns the words a user types. Refuses to know what they do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .shared_options import ENGINE, MEMORY, NETWORK, OUTPUT, option

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
    str | None, option("--layers", panel=MEMORY, metavar="A-B", text="The band: layers A to B, both included.")
]
Ctx = Annotated[
    int | None, option("--ctx", panel=MEMORY, metavar="TOKENS", text="Tokens a session may have; 4096 if left out.")
]
MaxSessions = Annotated[
    int,
    option("--max-sessions", panel=MEMORY, metavar="N", least=1, text="Conversations held at once, each planned for."),
]
StepTokens = Annotated[
    int | None,
    option(
        "--step-tokens",
        panel=MEMORY,
        metavar="N",
        least=1,
        text="Tokens of the largest step; left out: up to 2048, as the cap allows.",
    ),
]
Yes = Annotated[bool, option("--yes", panel=MEMORY, text="Convert a checkpoint without asking.")]

Host = Annotated[
    str | None,
    option(
        "--host",
        panel=NETWORK,
        metavar="ADDRESS",
        text="Where to listen; left out: 127.0.0.1, or every interface once the node is paired.",
    ),
]
Port = Annotated[int, option("--port", panel=NETWORK, metavar="PORT", least=0, text="The port; 0: a free one.")]
Name = Annotated[
    str | None, option("--name", panel=NETWORK, metavar="NAME", text="What to call this node; left out: the host.")
]
InsecureLan = Annotated[
    bool, option("--insecure-lan", panel=NETWORK, text="Listen on a private network without certificates.")
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
    option("--snapshots", panel=NETWORK, metavar="FOLDER", text="Where sessions' snapshots are kept."),
]

Backend = Annotated[str | None, option("--backend", panel=ENGINE, metavar="auto|mlx|kernels", text="What computes.")]

AsJson = Annotated[bool, option("--json", panel=OUTPUT, text="JSON lines on stdout: plan, loading, ready, draining.")]
Supervised = Annotated[
    bool,
    typer.Option(
        "--supervised",
        help="Watch the engine from a small parent process, which says by which signal it ended.",
        rich_help_panel=OUTPUT,
    ),
]

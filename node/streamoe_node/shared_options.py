"""How a command line's option is made, and the options of a band that every command line here has.

Owns the variable's name, the panels and the words of those options. Refuses to know what they do, and which command
takes them.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

MEMORY, ENGINE, NETWORK, OUTPUT = "Memory", "Engine", "Network", "Output"


def option(*names: str, panel: str, text: str, metavar: str | None = None, least: int | None = None) -> Any:
    """typer's option, also read from the environment: `--guess-width` from STREAMOE_GUESS_WIDTH. least: its minimum."""
    variable = "STREAMOE_" + names[0].split("/")[0].strip("-").upper().replace("-", "_")
    return typer.Option(*names, envvar=variable, help=text, rich_help_panel=panel, metavar=metavar, min=least)


Budget = Annotated[
    str | None,
    option("--budget", panel=MEMORY, metavar="SIZE", text="The cap on all of this process's memory: 4GiB, 4GB."),
]
Kv = Annotated[str | None, option("--kv", panel=MEMORY, metavar="f32|f16|bf16", text="How keys and values are kept.")]
Chunk = Annotated[int | None, option("--chunk", panel=MEMORY, metavar="TOKENS", text="Prompt tokens run at once.")]

Guess = Annotated[
    str | None,
    option(
        "--guess",
        panel=ENGINE,
        metavar="auto|cross-layer|previous-token|none",
        text="What decides the experts read early. It never changes the tokens.",
    ),
]
GuessWidth = Annotated[
    int | None, option("--guess-width", panel=ENGINE, metavar="EXPERTS", text="Experts read early in a layer.")
]
Policy = Annotated[
    str | None,
    option("--policy", panel=ENGINE, metavar="next-use|lru|lfu|sampled", text="Which experts stay in the hot tier."),
]
ReaderThreads = Annotated[
    int | None, option("--reader-threads", panel=ENGINE, metavar="N", least=1, text="Threads that read experts.")
]
Threads = Annotated[
    int | None,
    option("--threads", panel=ENGINE, metavar="N", least=1, text="Threads that compute; one a core if left out."),
]

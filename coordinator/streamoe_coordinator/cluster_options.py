"""The command line's options for several machines, each defined once, as in options.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamoe_node.shared_options import NETWORK, OUTPUT, option

from .options import MODEL

Nodes = Annotated[
    list[str] | None,
    option(
        "--node",
        panel=NETWORK,
        metavar="HOST:PORT",
        text="A node's address; may be given several times, and then no others are looked for.",
    ),
]
Fingerprint = Annotated[
    str | None,
    option("--fingerprint", panel=NETWORK, metavar="HEX", text="The model's fingerprint, or how it begins."),
]
InsecureLan = Annotated[
    bool,
    option("--insecure-lan", panel=NETWORK, text="Speak without certificates on a private network that you trust."),
]
Wait = Annotated[
    float,
    option("--wait", panel=NETWORK, metavar="SECONDS", least=0, text="How long to wait until the nodes are complete."),
]
Model = Annotated[
    Path | None,
    option(
        "--model",
        panel=MODEL,
        metavar="FOLDER",
        text="The model folder: its tokenizer, and the layers that this process opens itself. Left out: the model "
        "that comes along if it is the nodes' one, else the tokenizer is fetched from a node.",
    ),
]
Watch = Annotated[bool, option("--watch", panel=OUTPUT, text="Keep looking, until Ctrl-C.")]
Code = Annotated[str | None, option("--code", panel=NETWORK, metavar="CODE", text="The code that the node shows.")]
Force = Annotated[bool, option("--force", panel=NETWORK, text="Replace what is there.")]
Restore = Annotated[
    Path | None, option("--restore", panel=OUTPUT, metavar="FILE", text="Go on with a conversation that was saved.")
]
SaveTo = Annotated[
    Path | None, option("--save", panel=OUTPUT, metavar="FILE", text="Save the conversation's state here at the end.")
]
SnapshotFile = Annotated[Path, typer.Argument(help="A snapshot: a conversation with its state, of all bands.")]

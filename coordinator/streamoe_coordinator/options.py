"""The command line's options, each defined once; those that nodes have too are in `streamoe_node.shared_options`.

Owns the words a user types. Refuses to know what they do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamoe_node.shared_options import ENGINE, MEMORY, NETWORK, OUTPUT, option

MODEL, SAMPLING, BENCH = "Model", "Sampling", "Measurement"

Model = Annotated[
    Path | None,
    typer.Argument(
        envvar="STREAMOE_MODEL",
        help="A converted model folder, or a checkpoint to convert. Left out: the small model that comes along.",
        show_default=False,
    ),
]
Source = Annotated[Path, typer.Argument(help="The checkpoint's folder: Hugging Face or mlx-community layout.")]
Target = Annotated[Path, typer.Argument(help="The model folder to write.")]
Converted = Annotated[Path, typer.Argument(envvar="STREAMOE_MODEL", help="A converted model folder.")]

Budgets = Annotated[
    str | None, option("--budgets", panel=MEMORY, metavar="A,B,C", text="Compare plans: one column a cap.")
]
Ctx = Annotated[
    int | None, option("--ctx", panel=MEMORY, metavar="TOKENS", text="Prompt and answer together; 4096 if left out.")
]
Layers = Annotated[
    str | None, option("--layers", panel=MEMORY, metavar="A-B", text="Only layers A to B, both included.")
]
Head = Annotated[
    str | None,
    option(
        "--head",
        panel=MEMORY,
        metavar="auto|resident|streamed",
        text="Where the output head is. auto: read for each token where the cap has no room for it.",
    ),
]

Backend = Annotated[
    str | None,
    option(
        "--backend",
        panel=ENGINE,
        metavar="auto|mlx|kernels",
        text="What computes. auto: the C kernels where they can run the model on a CPU, else MLX.",
    ),
]

Prompt = Annotated[
    str | None, option("--prompt", panel=OUTPUT, metavar="TEXT", text="Answer this once on stdout, and exit.")
]
System = Annotated[str, option("--system", panel=MODEL, metavar="TEXT", text="The system message.")]
Thinking = Annotated[
    bool | None,
    typer.Option(
        "--think/--nothink",
        envvar="STREAMOE_THINK",
        help="Let the model think first, where its template has a switch. Left out: the model's default.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
Raw = Annotated[
    bool, option("--raw", panel=MODEL, text="Give --prompt to the model as it is, without the chat template.")
]
Yes = Annotated[bool, option("--yes", panel=MODEL, text="Convert a checkpoint without asking.")]
Quantize = Annotated[
    str,
    option(
        "--quantize",
        panel=MODEL,
        metavar="auto|keep",
        text="auto: 4 bits where the checkpoint is not quantised. keep: as stored.",
    ),
]
Verify = Annotated[bool, option("--verify", panel=MODEL, text="Also check the SHA-256 of every file.")]

MaxTokens = Annotated[
    int | None,
    option("--max-tokens", panel=SAMPLING, metavar="N", text="Longest answer; left out: the model's."),
]
Temperature = Annotated[
    float | None,
    option("--temperature", panel=SAMPLING, metavar="T", text="0: the likeliest token; left out: the model's."),
]
TopP = Annotated[
    float | None, option("--top-p", panel=SAMPLING, metavar="P", text="Only the likeliest tokens that reach P.")
]
TopK = Annotated[int | None, option("--top-k", panel=SAMPLING, metavar="K", text="Only the K likeliest tokens.")]
MinP = Annotated[
    float | None, option("--min-p", panel=SAMPLING, metavar="P", text="Only tokens of P times the likeliest.")
]
Seed = Annotated[int | None, option("--seed", panel=SAMPLING, metavar="N", text="The same seed, the same answer.")]
RepetitionPenalty = Annotated[
    float | None,
    option(
        "--repetition-penalty",
        panel=SAMPLING,
        metavar="R",
        text="Over 1: fewer repetitions; the model's own if left out.",
    ),
]

AsJson = Annotated[bool, option("--json", panel=OUTPUT, text="One JSON object on stdout, nothing else.")]

Tokens = Annotated[int, option("--tokens", panel=BENCH, metavar="N", least=1, text="Tokens to decode and time.")]
PromptTokens = Annotated[
    int, option("--prompt-tokens", panel=BENCH, metavar="N", least=1, text="Length of the prompt.")
]
Forced = Annotated[
    bool, option("--forced", panel=BENCH, text="Run random tokens, not text: for models of random weights.")
]
Rounds = Annotated[int, option("--rounds", panel=BENCH, metavar="N", least=1, text="Runs of each setting.")]
SweepBudgets = Annotated[str, option("--budgets", panel=MEMORY, metavar="A,B,C", text="The caps to measure.")]
Csv = Annotated[Path | None, option("--csv", panel=OUTPUT, metavar="FILE", text="Also write the rows here.")]
Svg = Annotated[Path | None, option("--svg", panel=OUTPUT, metavar="FILE", text="Also draw them here.")]
Out = Annotated[Path, option("--out", panel=OUTPUT, metavar="FILE", text="The trace to write.")]
Prompts = Annotated[
    Path | None, option("--prompts", panel=BENCH, metavar="FILE", text="JSON: a list of prompts, or lists by kind.")
]
OnePrompt = Annotated[str | None, option("--prompt", panel=BENCH, metavar="TEXT", text="One prompt.")]
AnswerTokens = Annotated[
    int, option("--max-tokens", panel=BENCH, metavar="N", least=1, text="Longest answer to each prompt.")
]
TraceFile = Annotated[Path, typer.Argument(help="A trace that `streamoe bench trace` wrote.")]
Slots = Annotated[str, option("--slots", panel=BENCH, metavar="A,B,C", text="Numbers of slots to try.")]
Widths = Annotated[str, option("--widths", panel=BENCH, metavar="A,B,C", text="Guesses a layer to try.")]
TraceGuess = Annotated[
    str, option("--guess", panel=BENCH, metavar="recorded|previous-token", text="Which guesses: those of the trace.")
]

Sequences = Annotated[
    int,
    option("--sequences", panel=MEMORY, metavar="N", least=1, text="Answers made together, each with the context."),
]
Checkpoints = Annotated[
    str | None,
    option(
        "--checkpoints",
        panel=MEMORY,
        metavar="SIZE",
        text="For copies of states, so that prompts that begin the same are not read again; 0MiB for none. "
        "Left out: room for two copies after 1024 tokens, where the cap has it.",
    ),
]
Host = Annotated[
    str, option("--host", panel=NETWORK, metavar="ADDRESS", text="Where to listen. Beyond this machine: --api-key.")
]
Port = Annotated[int, option("--port", panel=NETWORK, metavar="N", text="Where to listen; 0 takes a free one.")]
ApiKey = Annotated[
    str | None,
    option("--api-key", panel=NETWORK, metavar="KEY", text="What clients must send. Better in STREAMOE_API_KEY."),
]
AllowHost = Annotated[
    str | None, option("--allow-host", panel=NETWORK, metavar="A,B", text="Other names the server is asked by.")
]
CorsOrigin = Annotated[
    str | None,
    option("--cors-origin", panel=NETWORK, metavar="A,B", text="Origins of web pages that may ask; none if left out."),
]
Queue = Annotated[
    int,
    option(
        "--queue", panel=NETWORK, metavar="N", least=0, text="Requests that may wait; one more is told to come again."
    ),
]
Grace = Annotated[
    float, option("--grace", panel=NETWORK, metavar="SECONDS", text="What running answers get to end at SIGTERM.")
]
Alias = Annotated[
    str | None,
    option("--alias", panel=MODEL, metavar="A,B", text="Other names the model answers to; '*' for any."),
]
Grammar = Annotated[
    bool,
    typer.Option(
        "--grammar/--no-grammar",
        envvar="STREAMOE_GRAMMAR",
        help="Structured output, where the extra `grammar` is installed; it costs memory.",
        rich_help_panel=MODEL,
    ),
]
LogJson = Annotated[bool, option("--log-json", panel=OUTPUT, text="Log lines as JSON.")]

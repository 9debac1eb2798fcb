"""The command line: exit codes, what goes to which stream, the shapes of its JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamoe_engine.sizes import MIB
from tests.coordinator.conftest import Run, error_of

BUDGET = "400MiB"


def test_version_and_help(run_streamoe: Run) -> None:
    assert run_streamoe("--version").stdout.startswith("streamoe 0.")
    for args in (["-h"], ["--help"], ["chat", "-h"], ["plan", "--help"]):
        done = run_streamoe(*args)
        assert done.returncode == 0
        assert "3 plan does not fit" in done.stdout
    bare = run_streamoe()
    assert all(name in bare.stdout for name in ("chat", "plan", "convert", "verify", "doctor"))


def test_every_option_shows_its_variable(run_streamoe: Run) -> None:
    for command in ("chat", "plan", "doctor", "verify", "convert"):
        shown = " ".join(run_streamoe(command, "--help", env={"COLUMNS": "300"}).stdout.split("\n"))
        options = {word for word in shown.split() if word.startswith("--")} - {"--help", "--prompt.", "--nothink"}
        for option in options:
            assert f"STREAMOE_{option[2:].upper().replace('-', '_')}]" in shown, (command, option)


@pytest.mark.parametrize("size", ["4", "4GX", "-4GiB", "0MiB", "much"])
def test_a_size_needs_its_unit(run_streamoe: Run, small_folder: Path, size: str) -> None:
    done = run_streamoe("plan", small_folder, f"--budget={size}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"'{size}' is not a size such as 4GiB" in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ["--kv", "f8"],
        ["--guess", "sometimes"],
        ["--policy", "best"],
        ["--temperature", "-1"],
        ["--ctx", "0"],
        ["--raw", "--system", "x"],
        ["--ctx", "many"],
        ["--unknown"],
    ],
)
def test_a_value_that_cannot_be_meant_is_a_usage_error(run_streamoe: Run, small_folder: Path, wrong: list[str]) -> None:
    done = run_streamoe("chat", small_folder, "--budget", BUDGET, "--prompt", "hi", *wrong)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def test_json_needs_a_prompt(run_streamoe: Run, small_folder: Path) -> None:
    done = run_streamoe("chat", small_folder, "--budget", BUDGET, "--json")
    assert done.returncode == 2
    assert error_of(done)["code"] == "UsageError"


def test_a_missing_cap_is_a_usage_error_that_names_one_that_works(run_streamoe: Run, small_folder: Path) -> None:
    done = run_streamoe("chat", small_folder, "--prompt", "hi")
    assert done.returncode == 2
    suggested = done.stderr.split("fits is --budget ")[1].split()[0]
    again = run_streamoe("chat", small_folder, "--prompt", "hi", "--budget", suggested, "--max-tokens", 2)
    assert again.returncode == 0, again.stderr


def test_a_folder_that_is_no_model_fails_with_1(run_streamoe: Run, tmp_path: Path) -> None:
    done = run_streamoe("plan", tmp_path, "--budget", BUDGET, "--json")
    assert done.returncode == 1
    assert error_of(done)["code"] == "NotAModelFolder"
    plain = run_streamoe("plan", tmp_path / "none", "--budget", BUDGET)
    assert (plain.returncode, plain.stdout) == (1, "")
    assert plain.stderr.startswith("error: ")


# ---- plan


def test_the_plans_rows_sum_to_the_cap(run_streamoe: Run, small_folder: Path) -> None:
    done = run_streamoe("plan", small_folder, "--budget", BUDGET, "--ctx", 512, "--json")
    plan = json.loads(done.stdout)
    assert (done.returncode, plan["schema"], plan["fits"]) == (0, 1, True)
    assert sum(item["bytes"] for item in plan["items"]) == plan["budget_bytes"] == 400 * MIB
    assert all(item["name"] and item["why"] for item in plan["items"])
    assert (plan["ctx_tokens"], plan["num_layers"]) == (512, 4)
    assert plan["smallest_budget_bytes"] <= 400 * MIB


def test_the_plan_as_a_table(run_streamoe: Run, small_folder: Path) -> None:
    done = run_streamoe("plan", small_folder, "--budget", BUDGET, "--ctx", 512)
    assert done.returncode == 0
    table, _, below = done.stdout.partition("peak is promised")
    rows = [line for line in table.splitlines() if line.strip()][2:]
    assert len(rows) <= 12
    assert rows[-1].split()[:3] == ["sum", "400.00", "MiB"]
    assert f"{400 * MIB} B, the cap to the byte" in rows[-1]
    assert f"≤ 400.00 MiB ({400 * MIB} B)" in below
    assert "slots for 32 experts" in below


def test_the_smallest_cap_that_is_named_fits_and_one_page_less_does_not(run_streamoe: Run, small_folder: Path) -> None:
    named = json.loads(run_streamoe("plan", small_folder, "--budget", BUDGET, "--json").stdout)["smallest_budget_bytes"]
    slack = MIB  # two processes do not cost the same to the page
    assert run_streamoe("plan", small_folder, "--budget", f"{named + slack}B").returncode == 0
    refused = run_streamoe("plan", small_folder, "--budget", f"{named - slack}B")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "try --budget" in refused.stderr


def test_a_cap_that_does_not_fit_in_json(run_streamoe: Run, small_folder: Path) -> None:
    done = run_streamoe("plan", small_folder, "--budget", "20MiB", "--json")
    plan = json.loads(done.stdout)
    assert (done.returncode, plan["fits"], plan["error"]["code"]) == (3, False, "PlanDoesNotFit")
    assert plan["needed_bytes"] - plan["budget_bytes"] == plan["short_bytes"] > 0
    assert plan["suggestions"].startswith("try --budget")


def test_several_caps_beside_each_other(run_streamoe: Run, small_folder: Path) -> None:
    done = run_streamoe("plan", small_folder, "--budgets", "20MiB,400MiB,1GiB")
    assert done.returncode == 0
    assert "short by" in done.stdout and done.stdout.split("fits")[1].count("yes") == 2
    plans = json.loads(run_streamoe("plan", small_folder, "--budgets", "20MiB,400MiB", "--json").stdout)["plans"]
    assert [plan["fits"] for plan in plans] == [False, True]
    assert run_streamoe("plan", small_folder, "--budgets", "10MiB,20MiB").returncode == 3


def test_a_plan_for_some_layers(run_streamoe: Run, small_folder: Path) -> None:
    done = run_streamoe("plan", small_folder, "--budget", BUDGET, "--layers", "1-2", "--json")
    plan = json.loads(done.stdout)
    assert (plan["first_layer"], plan["last_layer"], plan["num_experts"]) == (1, 2, 16)
    for wrong in ("1-9", "2-1", "1-", "a-b"):
        assert run_streamoe("plan", small_folder, "--budget", BUDGET, "--layers", wrong).returncode == 2


# ---- chat --prompt


def test_one_answer_in_json(run_streamoe: Run, embedded_folder: Path) -> None:
    args = ["chat", embedded_folder, "--budget", "256MiB", "--prompt", "List five animals.", "--max-tokens", 12]
    done = run_streamoe(*args, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert answer["schema"] == 1
    assert answer["text"].startswith("Here is a list of 5 animals")
    assert answer["finish_reason"] == "length"
    assert len(answer["token_ids"]) == answer["usage"]["completion_tokens"] == 12
    assert answer["usage"]["prompt_tokens"] == 25
    assert answer["timings"]["ttft_s"] >= answer["timings"]["prefill_s"] > 0
    assert answer["timings"]["tokens_per_s"] > 0
    assert [layer["layer"] for layer in answer["layers"]] == list(range(16))
    assert all(layer["bytes_read"] > 0 for layer in answer["layers"])
    assert sum(layer["bytes_read"] for layer in answer["layers"]) == answer["read_bytes"]
    assert sum(item["bytes"] for item in answer["plan"]["items"]) == 256 * MIB
    assert 0 < answer["footprint_bytes"] <= answer["peak_bytes"] <= 256 * MIB


def test_one_answer_as_text(run_streamoe: Run, embedded_folder: Path) -> None:
    prompt = {"STREAMOE_PROMPT": "List five animals.", "STREAMOE_MAX_TOKENS": "12", "STREAMOE_BUDGET": "256MiB"}
    done = run_streamoe("chat", embedded_folder, env=prompt)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Here is a list of 5 animals") and done.stdout.endswith("\n")
    assert "\x1b" not in done.stdout + done.stderr
    assert "peak is promised ≤ 256.00 MiB" in done.stderr
    assert "12 tok · " in done.stderr and "/256 MiB · ended at the token limit" in done.stderr


def test_a_seed_repeats_an_answer(run_streamoe: Run, small_folder: Path) -> None:
    def tokens(seed: int) -> list[int]:
        args = ["--budget", BUDGET, "--prompt", "Tell me a story.", "--max-tokens", 8, "--temperature", 1.2]
        return json.loads(run_streamoe("chat", small_folder, *args, "--seed", seed, "--json").stdout)["token_ids"]

    assert tokens(1) == tokens(1) != tokens(2)


def test_raw_text_goes_on_without_a_template(run_streamoe: Run, embedded_folder: Path) -> None:
    args = ["--budget", "256MiB", "--raw", "--prompt", "The capital of France is", "--max-tokens", 1, "--json"]
    answer = json.loads(run_streamoe("chat", embedded_folder, *args).stdout)
    assert answer["usage"]["prompt_tokens"] == 5
    assert answer["text"].strip() == "Paris"


def test_a_prompt_over_the_context_is_refused_before_computing(run_streamoe: Run, small_folder: Path) -> None:
    args = ["--budget", BUDGET, "--ctx", 64, "--prompt", "x" * 100, "--json"]
    done = run_streamoe("chat", small_folder, *args)
    assert done.returncode == 1
    error = error_of(done)
    assert (error["code"], error["ctx_tokens"]) == ("ContextFull", 64)
    assert f"--ctx {error['needed_tokens']}" in error["next_step"]


def test_a_cap_that_does_not_fit_stops_a_chat_with_3(run_streamoe: Run, small_folder: Path) -> None:
    done = run_streamoe("chat", small_folder, "--budget", "20MiB", "--prompt", "hi", "--json")
    assert done.returncode == 3
    error = error_of(done)
    assert error["code"] == "PlanDoesNotFit"
    assert error["needed_bytes"] - error["cap_bytes"] == error["short_bytes"] > 0


def test_an_answer_to_a_prompt_loads_no_front_end(run_streamoe: Run, small_folder: Path) -> None:
    program = (
        "import sys, streamoe_coordinator.cli as cli\n"
        f"sys.argv[1:] = ['chat', {str(small_folder)!r}, '--budget', {BUDGET!r}, '--prompt', 'hi', '--json']\n"
        "try:\n    cli.main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "print(sorted({'rich', 'prompt_toolkit', 'transformers', 'pygments'} & sys.modules.keys()), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1] == "[]", done.stderr


def test_messages_from_a_pipe(run_streamoe: Run, embedded_folder: Path) -> None:
    lines = 'What is 2 plus 2?\n/ctx\n"""\nSay\nhello.\n"""\n/nosuch\n/quit\nnever read\n'
    done = run_streamoe("chat", embedded_folder, "--budget", "256MiB", "--max-tokens", 4, stdin=lines)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip().splitlines()) == 2
    assert done.stderr.count(" tok · ") == 2
    assert "tokens used" in done.stderr
    assert "/nosuch is no command" in done.stderr


def test_a_reader_that_leaves_ends_the_program_quietly(
    clean_environment: dict[str, str], embedded_folder: Path
) -> None:
    command = [sys.executable, "-m", "streamoe_coordinator", "chat", str(embedded_folder), "--budget", "256MiB"]
    command += ["--prompt", "Tell me a story.", "--max-tokens", "40"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=clean_environment) as program:
        assert program.stdout is not None and program.stderr is not None
        program.stdout.read(1)
        program.stdout.close()
        shown = program.stderr.read()
    assert program.returncode == 1
    assert "Traceback" not in shown and "BrokenPipe" not in shown


def test_an_encoding_without_the_letters_breaks_nothing(run_streamoe: Run, small_folder: Path) -> None:
    latin = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = run_streamoe("plan", small_folder, "--budget", BUDGET, env=latin)
    assert done.returncode == 0, done.stderr
    assert "peak is promised ? 400.00 MiB" in done.stdout

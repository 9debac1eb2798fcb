"""The Makefile: few targets, all listed, and a prompt that arrives as it was typed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()


def make(*args: str) -> subprocess.CompletedProcess[str]:
    # These tests run below `make test` too, whose own flags would make this make announce its folder.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *args], cwd=ROOT, env=clean, capture_output=True, text=True, timeout=60, check=False)


def test_there_are_at_most_12_targets_and_make_lists_them_all() -> None:
    targets = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())  # type: ignore[index]
    listed = set(re.findall(r"^  make (\S+) +\S", make().stdout, re.MULTILINE))
    assert listed == targets == set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert len(targets) <= 12
    for target in targets:
        assert make("-n", target).returncode == 0


@pytest.mark.parametrize(
    "prompt",
    [
        "plain words",
        'He said "hi" & left; it\'s $HOME and `id`',
        "$(shell touch made-by-make) $$ $(PYTHON) ${x}",
        "two\nlines # and a hash \\n",
        "",
    ],
)
def test_a_prompt_arrives_as_it_was_typed(tmp_path: Path, prompt: str) -> None:
    probe = tmp_path / "probe.mk"
    probe.write_text(f"include {ROOT / 'Makefile'}\nprobe:\n\t@printenv STREAMOE_PROMPT\n")
    done = make("-f", str(probe), "probe", f"PROMPT={prompt}")
    assert done.stdout == prompt + "\n"
    assert not (ROOT / "made-by-make").exists()


def test_an_inherited_prompt_variable_is_not_a_question(tmp_path: Path) -> None:
    probe = tmp_path / "probe.mk"
    probe.write_text(f"include {ROOT / 'Makefile'}\nprobe:\n\t@printenv STREAMOE_PROMPT || echo none\n")
    done = subprocess.run(
        ["make", "-f", str(probe), "probe"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PROMPT": "%n@%m %~ "},
        check=False,
    )
    assert done.stdout == "none\n"


def test_an_old_python_is_named_with_the_way_out(tmp_path: Path) -> None:
    old = tmp_path / "python3.10"
    old.write_text('#!/bin/sh\nexec python3 -c "import sys; sys.version_info = (3, 10, 4); exec(sys.argv[2])" "$@"\n')
    old.chmod(0o755)
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("Makefile", "pyproject.toml", "setup.py", "requirements.lock"):
        (checkout / name).write_text((ROOT / name).read_text())
    done = subprocess.run(
        ["make", "chat", f"PYTHON={old}"], cwd=checkout, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr and "3.10" in done.stderr
    assert "PYTHON=" in done.stderr
    assert not (checkout / ".venv").exists()

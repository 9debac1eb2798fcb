"""The page's files: libraries as they were published, nothing inline, nothing from elsewhere."""

from __future__ import annotations

import hashlib
import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

WEB = Path(str(files("streamoe_coordinator"))) / "serving" / "web"
PACKAGES = tomllib.loads((WEB / "vendor/VENDOR.toml").read_text())["package"]
OWN = sorted(path for path in WEB.iterdir() if path.suffix in (".js", ".css", ".html", ".svg"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package["name"])
def test_a_library_is_what_was_pinned(package: dict[str, str | list[dict[str, str]]]) -> None:
    assert str(package["integrity"]).startswith("sha512-")
    folder = WEB / "vendor" / f"{package['name']}-{package['version']}"
    names = set()
    for file in package["file"]:
        assert isinstance(file, dict)
        assert hashlib.sha256((folder / file["to"]).read_bytes()).hexdigest() == file["sha256"], file["to"]
        names.add(folder / file["to"])
    assert names == {path for path in folder.rglob("*") if path.is_file()}, "no file is left unpinned"
    assert package["licence"]
    assert (folder / "LICENSE").stat().st_size > 500


def test_only_pinned_libraries_lie_here_and_the_page_uses_them() -> None:
    folders = {f"{package['name']}-{package['version']}" for package in PACKAGES}
    assert {path.name for path in (WEB / "vendor").iterdir()} == folders | {"VENDOR.toml"}
    text = (WEB / "libraries.js").read_text()
    used = {WEB / path for path in re.findall(r'from "\./(vendor/[^"]+)"', text)}
    assert used == {path for path in (WEB / "vendor").rglob("*.js")}


def test_modules_import_only_each_other() -> None:
    for path in OWN:
        for name in re.findall(r'(?:from|import\()\s*"([^"]+)"', path.read_text()) if path.suffix == ".js" else []:
            assert name.startswith("./"), (path.name, name)
            assert (WEB / name).is_file(), (path.name, name)
            assert path.name == "libraries.js" or "vendor" not in name, path.name


def test_own_files_are_small_typed_and_described() -> None:
    assert len(OWN) > 20
    for path in OWN:
        lines = path.read_text().splitlines()
        assert len(lines) <= 300, path.name
        if path.suffix == ".js":
            assert lines[0] == "// @ts-check", path.name
            assert lines[1].startswith(("/**", "//")), path.name


def test_nothing_is_inline_and_nothing_is_elsewhere() -> None:
    page = (WEB / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)
    for path in OWN:
        addresses = re.findall(r"https?://[^\s\"'`)]+", path.read_text())
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}, path.name

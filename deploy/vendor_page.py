"""The page's libraries: fetched from the npm registry, checked, and copied beside the page.

    python deploy/vendor_page.py                    fetch what VENDOR.toml pins, refuse whatever differs
    python deploy/vendor_page.py marked 18.2.2      pin another version, then fetch it

Owns `serving/web/vendor/` and the words in its VENDOR.toml. Refuses to change a library's bytes: files are copied as
they were published. Needs `npm`; the page itself never does. A new version also needs its folder's name in the page's
`libraries.js`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

WEB = Path(__file__).parent.parent / "coordinator/streamoe_coordinator/serving/web"
VENDOR = WEB / "vendor"
PINS = VENDOR / "VENDOR.toml"
HEADER = """\
# The page's libraries, byte for byte as the npm registry has them. `make vendor` fetches and checks them again.
# integrity is the registry's hash of the package; sha256 is that of each file here.
"""


def main() -> None:
    """Fetch every pinned package, or one at a new version."""
    packages = tomllib.loads(PINS.read_text())["package"]
    wanted = dict([sys.argv[1:3]]) if len(sys.argv) == 3 else {}
    if len(sys.argv) not in (1, 3) or not wanted.keys() <= {package["name"] for package in packages}:
        sys.exit(__doc__)
    for package in packages:
        if package["name"] in wanted:
            _remove_files(package)
            package.update(version=wanted[package["name"]], integrity="")
        _fetch(package, may_differ=package["name"] in wanted)
    PINS.write_text(_toml(packages))


def _fetch(package: dict[str, Any], *, may_differ: bool) -> None:
    spec = f"{package['npm']}@{package['version']}"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["npm", "pack", "--json", spec], cwd=folder, check=True, capture_output=True, text=True, timeout=120
        )
        archive = Path(folder) / json.loads(done.stdout)[0]["filename"]
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if integrity != package["integrity"] and not may_differ:
            sys.exit(f"{spec} is {integrity}, and VENDOR.toml pins {package['integrity']}")
        package["integrity"] = integrity
        with tarfile.open(archive) as tar:
            for file in package["file"]:
                _copy(tar, file, folder_of(package), may_differ=may_differ)
    print(f"{spec}: {len(package['file'])} files")


def _copy(tar: tarfile.TarFile, file: dict[str, str], folder: Path, *, may_differ: bool) -> None:
    member = tar.extractfile(f"package/{file['from']}")
    if member is None:
        sys.exit(f"{file['from']} is no file of the package")
    data = member.read()
    digest = hashlib.sha256(data).hexdigest()
    if digest != file["sha256"] and not may_differ:
        sys.exit(f"{file['from']} has SHA-256 {digest}, and VENDOR.toml pins {file['sha256']}")
    file["sha256"] = digest
    target = folder / file["to"]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def _remove_files(package: dict[str, Any]) -> None:
    for file in package["file"]:
        (folder_of(package) / file["to"]).unlink(missing_ok=True)


def folder_of(package: dict[str, Any]) -> Path:
    """Where a package's files lie."""
    return VENDOR / f"{package['name']}-{package['version']}"


def _toml(packages: list[dict[str, Any]]) -> str:
    lines = [HEADER]
    for package in packages:
        lines.append("[[package]]")
        lines += [f'{key} = "{package[key]}"' for key in ("name", "npm", "version", "licence", "integrity")]
        lines.append("file = [")
        lines += [
            f'    {{ from = "{file["from"]}", to = "{file["to"]}", sha256 = "{file["sha256"]}" }},'
            for file in package["file"]
        ]
        lines += ["]", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

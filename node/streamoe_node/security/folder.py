"""Where keys and certificates lie: a folder that only its owner reads.

Owns the files' names, modes and their whole-or-not-at-all writing. Refuses to know what the files mean.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from ..errors import CredentialsUnusable
from .authority import Authority, Credentials

_KEY, _CERTIFICATE, _AUTHORITY, _AUTHORITY_KEY = "member.key", "member.crt", "authority.crt", "authority.key"


def node_folder(node_id: str) -> Path:
    """Where the credentials of one of this machine's nodes are."""
    return platformdirs.user_config_path("streamoe") / "node" / node_id


def node_folders() -> tuple[Path, ...]:
    """The folders of all nodes of this machine that were paired."""
    found = (platformdirs.user_config_path("streamoe") / "node").glob(f"*/{_CERTIFICATE}")
    return tuple(sorted(path.parent for path in found))


def cluster_folder() -> Path:
    """Where a coordinator's credentials and the authority's key are."""
    return platformdirs.user_config_path("streamoe") / "cluster"


def has_credentials(folder: Path) -> bool:
    """Whether a member was paired here, whole or broken."""
    return (folder / _CERTIFICATE).exists()


def has_authority(folder: Path) -> bool:
    """Whether there is an authority here."""
    return (folder / _AUTHORITY_KEY).exists()


def save_credentials(folder: Path, credentials: Credentials) -> None:
    """Write a member's files; the certificate last, for it is what says that all is there.

    Raises CredentialsUnusable when the folder cannot be written.
    """
    _write(folder / _AUTHORITY, credentials.authority_pem)
    _write(folder / _KEY, credentials.key_pem)
    _write(folder / _CERTIFICATE, credentials.certificate_pem)


def load_credentials(folder: Path) -> Credentials:
    """A member's files. Raises CredentialsUnusable when one is missing or others can read the key."""
    _refuse_open_key(folder / _KEY)
    return Credentials(_read(folder / _KEY), _read(folder / _CERTIFICATE), _read(folder / _AUTHORITY))


def save_authority(folder: Path, authority: Authority) -> None:
    """Write the authority. Raises CredentialsUnusable."""
    _write(folder / _AUTHORITY, authority.certificate_pem)
    _write(folder / _AUTHORITY_KEY, authority.key_pem)


def load_authority(folder: Path) -> Authority:
    """The authority. Raises CredentialsUnusable when there is none, or others can read its key."""
    if not has_authority(folder):
        raise CredentialsUnusable(f"there is no cluster in {folder}", "make one: streamoe-coord init")
    _refuse_open_key(folder / _AUTHORITY_KEY)
    return Authority.load(_read(folder / _AUTHORITY_KEY), _read(folder / _AUTHORITY))


def _write(path: Path, content: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh.unlink(missing_ok=True)
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise CredentialsUnusable(f"{path} cannot be written: {error.strerror}", "check the folder's owner") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CredentialsUnusable(
            f"{path} cannot be read: {error.strerror}", "pair again: streamoe-node pair"
        ) from error


def _refuse_open_key(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # reading it says what is wrong
    if mode & 0o077:
        raise CredentialsUnusable(f"others on this machine can read {path}", f"close it: chmod 600 {path}")

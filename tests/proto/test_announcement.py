"""The TXT record of a node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_proto.announcement import FINGERPRINT_PREFIX, Announcement

FULL = Announcement("mini-1" + "x" * 57, "b" * 16, 1, "10-19", "quarantined", "f" * 64, "c" * 16, is_tls=True)


def as_bytes(announcement: Announcement) -> dict[bytes, bytes | None]:
    return {key.encode(): value.encode() for key, value in announcement.to_txt().items()}


def test_it_comes_back_and_is_small() -> None:
    found = Announcement.from_txt(as_bytes(FULL))
    assert found is not None and found.fingerprint == "f" * FINGERPRINT_PREFIX
    assert (found.node_id, found.boot_id, found.layers, found.is_tls) == (FULL.node_id, FULL.boot_id, "10-19", True)
    assert sum(len(key) + len(value or b"") + 2 for key, value in as_bytes(FULL).items()) < 400


@pytest.mark.parametrize("key", [b"id", b"boot", b"v", b"band", b"state", b"fp"])
def test_a_record_that_lacks_a_part_is_not_ours(key: bytes) -> None:
    record = as_bytes(FULL)
    del record[key]
    assert Announcement.from_txt(record) is None


@given(st.dictionaries(st.binary(max_size=5), st.none() | st.binary(max_size=9)))
def test_any_record_is_read_or_refused(record: dict[bytes, bytes | None]) -> None:
    Announcement.from_txt(record)
    Announcement.from_txt(as_bytes(FULL) | record)

"""Where a port may be open."""

from __future__ import annotations

import pytest

from streamoe_node.errors import ExposureRefused
from streamoe_node.security.exposure import check, reach

NAMES = {"mini.local": ["192.168.1.20"], "two": ["127.0.0.1", "192.168.1.20"], "far": ["192.168.1.20", "8.8.8.8"]}


def resolve(name: str) -> list[str]:
    if name == "localhost":
        return ["::1", "127.0.0.1"]
    if name not in NAMES:
        raise OSError(-2, "Name or service not known")
    return NAMES[name]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.4.5", "::1", "[::1]", "localhost"])
@pytest.mark.parametrize("insecure_lan", [False, True])
def test_loopback_is_free(host: str, insecure_lan: bool) -> None:
    assert check(host, has_credentials=False, insecure_lan=insecure_lan, resolve=resolve) is None
    assert reach(host, resolve) == "machine"


@pytest.mark.parametrize(
    "host", ["192.168.1.20", "10.1.2.3", "172.16.0.1", "169.254.7.7", "fe80::1%en0", "[fd00::2]", "mini.local", "two"]
)
def test_a_private_network_needs_credentials_or_the_flag(host: str) -> None:
    assert reach(host, resolve) == "network"
    assert check(host, has_credentials=True, insecure_lan=False, resolve=resolve) is None
    with pytest.raises(ExposureRefused, match="no certificate"):
        check(host, has_credentials=False, insecure_lan=False, resolve=resolve)
    warning = check(host, has_credentials=False, insecure_lan=True, resolve=resolve)
    assert warning is not None and host in warning


@pytest.mark.parametrize(
    "host",
    ["8.8.8.8", "172.32.0.1", "2001:4860::1", "::ffff:8.8.8.8", "100.64.0.1", "0.0.0.0", "::", "[::]", "", "*", "far"],
)
def test_the_flag_is_refused_beyond_private_addresses(host: str) -> None:
    assert check(host, has_credentials=True, insecure_lan=True, resolve=resolve) is None
    for insecure_lan in (False, True):
        with pytest.raises(ExposureRefused) as refusal:
            check(host, has_credentials=False, insecure_lan=insecure_lan, resolve=resolve)
        assert refusal.value.next_step and refusal.value.exit_code == 2


def test_a_name_nobody_knows() -> None:
    with pytest.raises(ExposureRefused, match="no known name"):
        check("nowhere", has_credentials=True, insecure_lan=False, resolve=resolve)

"""The pairing conversation, message by message: what is refused, and that nothing said can be used twice."""

from __future__ import annotations

import copy
import threading
from datetime import UTC, datetime, timedelta

import pytest

from streamoe_node.errors import CredentialsUnusable, PairingFailed
from streamoe_node.security import code as code_module
from streamoe_node.security.authority import Authority, Credentials, Member, check_issued, member_of
from streamoe_node.security.code import CODE_LIFE_S, MAX_TRIES, OneTimeCode, new_code, normal_code
from streamoe_node.security.pairing import CoordinatorPairing, Message, NodePairing

NOW = datetime.now(UTC)
CHANNEL = b"c" * 32


class Time:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def authority() -> Authority:
    return Authority.create("home", NOW)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def code(time: Time) -> OneTimeCode:
    return OneTimeCode(new_code(), time)


def node(code: OneTimeCode, node_id: str = "mini-1", channel: bytes = CHANNEL) -> NodePairing:
    return NodePairing(node_id, "Jürgen's Mac", code, channel)


def talk(a: NodePairing, b: CoordinatorPairing) -> tuple[Credentials, list[Message]]:
    said = [a.hello()]
    said.append(b.answer(said[-1]))
    said.append(a.request(said[-1]))
    said.append(b.certificate(said[-1], NOW))
    return a.finish(said[-1], NOW), said


def test_a_paired_node_has_a_certificate_for_its_id(authority: Authority, code: OneTimeCode) -> None:
    theirs = CoordinatorPairing(authority, code.code.lower().replace("-", " "), CHANNEL)
    credentials, _ = talk(node(code), theirs)
    assert credentials.member == Member("node", "mini-1") == member_of(credentials.certificate_pem)
    assert (theirs.node_id, theirs.node_name) == ("mini-1", "Jürgen's Mac")
    check_issued(credentials, Member("node", "mini-1"), NOW)
    with pytest.raises(CredentialsUnusable, match="clock"):
        check_issued(credentials, Member("node", "mini-1"), NOW + timedelta(days=800))
    with pytest.raises(CredentialsUnusable, match="mini-2"):
        check_issued(credentials, Member("node", "mini-2"), NOW)


def test_a_wrong_code_is_refused_and_three_are_all(authority: Authority, code: OneTimeCode) -> None:
    for tries_left in reversed(range(MAX_TRIES)):
        ours = node(code)
        with pytest.raises(PairingFailed, match=f"{tries_left} tries left"):
            ours.request(CoordinatorPairing(authority, new_code(), CHANNEL).answer(ours.hello()))
    with pytest.raises(PairingFailed, match="wrong 3 times"):
        talk(node(code), CoordinatorPairing(authority, code.code, CHANNEL))
    assert code.left_s == 0


def test_the_right_code_works_at_the_third_try_and_never_again(authority: Authority, code: OneTimeCode) -> None:
    for _ in range(MAX_TRIES - 1):
        ours = node(code)
        with pytest.raises(PairingFailed):
            ours.request(CoordinatorPairing(authority, new_code(), CHANNEL).answer(ours.hello()))
    talk(node(code), CoordinatorPairing(authority, code.code, CHANNEL))
    with pytest.raises(PairingFailed, match="has been used"):
        talk(node(code), CoordinatorPairing(authority, code.code, CHANNEL))


def test_a_code_expires(authority: Authority, code: OneTimeCode, time: Time) -> None:
    ours = node(code)
    answer = CoordinatorPairing(authority, code.code, CHANNEL).answer(ours.hello())
    time.now_s += CODE_LIFE_S
    with pytest.raises(PairingFailed, match="expired"):
        ours.request(answer)


def test_someone_in_between_proves_nothing(authority: Authority, code: OneTimeCode) -> None:
    """Passing all messages on between two TLS connections: each side has seen another certificate."""
    ours, theirs = node(code), CoordinatorPairing(authority, code.code, b"m" * 32)
    with pytest.raises(PairingFailed, match="wrong code"):
        ours.request(theirs.answer(ours.hello()))


def test_what_was_said_cannot_be_said_again(authority: Authority, time: Time) -> None:
    same = new_code()  # even if a code came twice
    _, said = talk(node(OneTimeCode(same, time)), CoordinatorPairing(authority, same, CHANNEL))
    replayed = node(OneTimeCode(same, time))
    replayed.hello()
    with pytest.raises(PairingFailed):
        replayed.request(said[1])
    theirs = CoordinatorPairing(authority, same, CHANNEL)
    theirs.answer(said[0])
    with pytest.raises(PairingFailed, match="not the node"):
        theirs.certificate(said[2], NOW)


@pytest.mark.parametrize(("step", "name"), [(1, "authority"), (1, "nonce"), (2, "request"), (3, "certificate")])
def test_a_changed_message_is_noticed(authority: Authority, code: OneTimeCode, step: int, name: str) -> None:
    other = Authority.create("other", NOW)
    changed = {
        "authority": other.certificate_pem.decode(),
        "nonce": "00" * 32,
        "request": "x",
        "certificate": other.issue(Member("node", "mini-1"), NOW).certificate_pem.decode(),
    }
    ours, theirs = node(code), CoordinatorPairing(authority, code.code, CHANNEL)

    def said(number: int, message: Message) -> Message:
        return {**copy.deepcopy(message), name: changed[name]} if number == step else message

    with pytest.raises(PairingFailed):
        request = said(2, ours.request(said(1, theirs.answer(ours.hello()))))
        ours.finish(said(3, theirs.certificate(request, NOW)), NOW)


def test_a_coordinator_that_knows_the_code_cannot_give_a_certificate_for_another(
    authority: Authority, code: OneTimeCode
) -> None:
    ours, theirs = node(code, "mini-1"), CoordinatorPairing(authority, code.code, CHANNEL)
    request = ours.request(theirs.answer(ours.hello()))
    theirs.node_id = "mini-2"
    with pytest.raises(CredentialsUnusable, match="mini-2"):
        ours.finish(theirs.certificate(request, NOW), NOW)


@pytest.mark.parametrize("node_id", ["", "a b", "../x", "x" * 64, "Ä", "-a", "urn:x"])
def test_an_id_that_is_no_name(authority: Authority, code: OneTimeCode, node_id: str) -> None:
    with pytest.raises(CredentialsUnusable):
        node(code, node_id)
    hello = {**node(code).hello(), "node_id": node_id}
    theirs = CoordinatorPairing(authority, code.code, CHANNEL)
    with pytest.raises((PairingFailed, CredentialsUnusable)):
        theirs.certificate(node(code).request(theirs.answer(hello)), NOW)


@pytest.mark.parametrize(
    "hello",
    [{}, {"version": 2}, {"version": 1, "node_id": 7}, {"version": 1, "node_id": "a", "name": "b", "nonce": "zz"}],
)
def test_messages_that_are_none(authority: Authority, code: OneTimeCode, hello: Message) -> None:
    with pytest.raises(PairingFailed):
        CoordinatorPairing(authority, code.code, CHANNEL).answer(hello)
    with pytest.raises(PairingFailed):
        node(code).request(hello)


def test_a_node_that_is_not_wanted(authority: Authority, code: OneTimeCode) -> None:
    theirs = CoordinatorPairing(authority, code.code, CHANNEL, lambda node_id: f"{node_id} is another's")
    with pytest.raises(PairingFailed, match="mini-1 is another's"):
        theirs.answer(node(code).hello())


def test_codes_are_read_as_they_are_meant() -> None:
    assert normal_code(" o0iL-abcd ") == "0011ABCD"
    assert len({new_code() for _ in range(50)}) == 50
    for wrong in ("", "ABC", "ABCD-EFG!", "ABCD-EFGU", "ABCDEFGHJ"):
        with pytest.raises(PairingFailed):
            normal_code(wrong)


def test_many_at_once_have_three_tries_between_them(time: Time) -> None:
    code, taken = OneTimeCode(new_code(), time), []

    def attempt() -> None:
        try:
            code.take_try()
        except PairingFailed:
            return
        taken.append(1)

    threads = [threading.Thread(target=attempt) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == code_module.MAX_TRIES

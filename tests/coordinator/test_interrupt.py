"""Ctrl-C: the first asks to stop, the second ends, and afterwards all is as before."""

from __future__ import annotations

import os
import signal

import pytest

from streamoe_coordinator.interrupt import ignored_interrupts, stops_on_interrupt


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_sets_the_flag_and_the_second_raises() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stops_on_interrupt() as stop:
        assert not stop.is_set
        interrupt()
        assert stop.is_set
        interrupt()
    assert signal.getsignal(signal.SIGINT) is before


def test_each_answer_begins_with_a_clear_flag() -> None:
    for _ in range(2):
        with stops_on_interrupt() as stop:
            assert not stop.is_set
            interrupt()
            assert stop.is_set


def test_between_answers_an_interrupt_does_nothing() -> None:
    with ignored_interrupts():
        interrupt()
        with stops_on_interrupt() as stop:
            interrupt()
        assert stop.is_set
        interrupt()
    with pytest.raises(KeyboardInterrupt):
        interrupt()

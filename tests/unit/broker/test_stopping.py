"""Signals end the process in order, whatever it is doing."""

from __future__ import annotations

import signal
from threading import Thread

import pytest

from dueq.broker.stopping import Stopping


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_calls_what_it_was_given(number: signal.Signals) -> None:
    called: list[int] = []
    with Stopping() as stopping:
        stopping.call(lambda: called.append(1))
        signal.raise_signal(number)
        signal.raise_signal(number)
    assert called == [1, 1]


def test_a_signal_during_the_start_ends_it_with_success() -> None:
    with pytest.raises(SystemExit) as ended, Stopping():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 0


def test_the_handlers_of_before_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Stopping():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_outside_of_the_main_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def enter() -> None:
        with Stopping():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_comes_where_nothing_can_be_raised_is_not_forgotten() -> None:
    """A broker that was told to end while an object was being destroyed went on for ever."""

    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    called: list[int] = []
    with Stopping() as stopping:
        Dying()
        stopping.call(lambda: called.append(1))
    assert called == [1]

"""Threads for calls that may hang."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("aiohttp")

from dueq.gateway.webhooks.threads import Threads


def test_calls_are_made_by_no_more_threads_than_there_may_be() -> None:
    threads, go, names = Threads(2, "call"), threading.Event(), set[str]()

    def call(number: int) -> int:
        names.add(threading.current_thread().name)
        go.wait(60)
        return number

    made = [threads.submit(lambda number=number: call(number)) for number in range(8)]  # type: ignore[misc]
    go.set()
    assert [each.result(60) for each in made] == list(range(8))
    assert threads.submit(lambda: 8).result(60) == 8
    assert names <= {"call 1", "call 2"}
    threads.close()


def test_an_error_of_a_call_is_its_result() -> None:
    threads = Threads(1, "call")
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(60)
    assert threads.submit(lambda: 7).result(60) == 7
    threads.close()


def test_calls_that_wait_as_they_are_closed_are_cancelled() -> None:
    threads, go = Threads(1, "call"), threading.Event()
    begun = threading.Event()
    under_way = threads.submit(lambda: begun.set() or go.wait(60))  # type: ignore[func-returns-value]
    assert begun.wait(60)
    waiting = threads.submit(lambda: True)
    threads.close()
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="no more calls"):
        threads.submit(lambda: True)
    go.set()
    assert under_way.result(60) is True


def test_a_thread_that_the_machine_does_not_give_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counted as one that had begun: in the end no call was made any more."""
    threads = Threads(2, "call")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start"):
                threads.submit(lambda: 1)
    assert threads.submit(lambda: 2).result(60) == 2
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        made = [threads.submit(lambda number=number: number) for number in range(3)]  # type: ignore[misc]
        assert [each.result(60) for each in made] == [0, 1, 2]  # by the one that there is
    threads.close()

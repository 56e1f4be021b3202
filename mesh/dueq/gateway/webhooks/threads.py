"""Threads for calls that may hang: a process that ends does not wait for them, as it does for those of an executor."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """A number of threads, begun as they are needed.

    `submit` and `close` are for one thread.

    Args:
        most: threads at most; calls beyond wait for their turn.
        name: of each.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name, self._begun = most, name, 0
        self._idle = Semaphore(0)
        self._waiting: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._closed = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have a thread make a call, and return its result to be.

        Raises:
            RuntimeError: they are closed, or the machine gives no thread, and there is none yet.
        """
        if self._closed:
            raise RuntimeError(f"no more calls are made: {self._name}")
        future: Future[T] = Future()
        if not self._idle.acquire(blocking=False) and self._begun < self._most:
            try:
                Thread(target=self._run, name=f"{self._name} {self._begun + 1}", daemon=True).start()
                self._begun += 1
            except RuntimeError:
                if not self._begun:
                    raise
        self._waiting.put((call, future))
        return future

    def close(self) -> None:
        """Begin no more calls: those that wait are cancelled, and those under way end when they do."""
        self._closed = True
        with suppress(Empty):
            while (work := self._waiting.get_nowait()) is not None:
                work[1].cancel()
        for _ in range(self._begun):
            self._waiting.put(None)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            _make(*work)
            self._idle.release()


def _make(call: Callable[[], T], future: Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)

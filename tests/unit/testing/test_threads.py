"""Whether threads are at work, however they begin and wait while somebody looks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dueq.testing.threads import Threads, _Waiter


def test_work_that_is_handed_over_while_somebody_looks_is_seen() -> None:
    """The thread that hands it over waits before it is looked at itself, and nobody has begun the work yet."""
    threads = Threads(lambda: 0)

    class Late(dict[int, Any]):
        def items(self) -> Any:
            if not self:
                self[0] = "handed over"
                threads.hand_over("work")
            return {}.items()

    threads._waiters = Late()
    assert threads._busy() is threading.current_thread()


@pytest.mark.parametrize("look", [Threads._busy, Threads.rest, Threads.end])
def test_a_thread_that_is_woken_while_somebody_looks_does_no_harm(look: Callable[[Threads], object]) -> None:
    """It says that it is at work just when it was seen to wait: a test broke once in many thousand runs."""
    threads = Threads(lambda: 0)

    class Woken(_Waiter):
        looks = 0

        @property
        def waking(self) -> Any:
            self.looks += 1
            threads._waiters.clear()
            return threading.Event() if self.looks == 1 else None

        @waking.setter
        def waking(self, waking: Any) -> None:
            pass

    threads._waiters[1] = Woken(threading.current_thread(), 0, None)
    look(threads)

"""How threads other than the test's own wait for the mesh: really, until they are woken or the clock has moved on.

A thread that has waited for messages counts as at work from the moment it is woken until it waits again or ends. Time
does not move on meanwhile: what a handler does happens at the instant of its message.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from dueq.client.host import Done, Waking
from dueq.testing.errors import NotAtRest

PATIENCE_S: Final = 10.0
"""How long a handler may be at work, and a thread wait while nobody moves the clock: real seconds."""
_LOOK_S: Final = 0.0005


class _Answered:
    """Whether an answer has come that nobody has taken."""

    def __init__(self, done: Done) -> None:
        self._done = done

    def wait(self, timeout: float | None = None) -> bool:
        """See `Waking`."""
        return not self._done.locked()

    def set(self) -> None:
        """See `Waking`; an answer comes by its deadline."""


@dataclass(slots=True)
class _Waiter:
    thread: threading.Thread
    until_us: int
    waking: Waking | None
    """None: it is at work. The thread itself changes that at any instant, so others look once."""

    def wake(self) -> None:
        if (waking := self.waking) is not None:
            waking.set()

    def is_busy(self) -> bool:
        return (waking := self.waking) is None or waking.wait(0)


class Threads:
    """All other threads that have ever waited for messages.

    Args:
        mono_us: the world's clock for durations.
    """

    def __init__(self, mono_us: Callable[[], int]) -> None:
        self._mono_us = mono_us
        self._waiters: dict[int, _Waiter] = {}
        self._handed_over: dict[object, threading.Thread] = {}
        self._latest: object = None
        self._ended = False

    def end(self) -> None:
        """Nothing happens any more: nobody waits longer."""
        self._ended = True
        for waiter in list(self._waiters.values()):
            waiter.wake()

    def hand_over(self, work: object) -> None:
        """A thread is about to have this to do."""
        self._handed_over[work] = threading.current_thread()
        self._latest = work

    @contextmanager
    def handling(self, work: object) -> Iterator[None]:
        """This thread is at work on it, but for when it waits for the mesh."""
        me = threading.get_ident()
        self._waiters[me] = _Waiter(threading.current_thread(), 0, None)
        del self._handed_over[work]
        try:
            yield
        finally:
            self._waiters.pop(me, None)

    def wait(self, waking: Waking, until_us: int) -> None:
        """Have this thread wait until it is woken, or the clock shows `until_us`."""
        me = threading.current_thread()
        waiter = _Waiter(me, until_us, waking)
        self._waiters[threading.get_ident()] = waiter
        if self._mono_us() < until_us:
            waking.wait()
        waiter.waking = None
        if self._ended:
            raise NotAtRest("the mesh of this test has ended, and somebody still waits for messages")

    def wait_done(self, done: Done, until_us: int) -> bool:
        """Have this thread wait for an answer, which comes before the clock shows `until_us`.

        Raises:
            NotAtRest: the answer takes time, and nobody moves the clock.
        """
        if done.acquire(blocking=False):
            return True
        me = threading.get_ident()
        before = self._waiters.get(me)
        waiter = self._waiters[me] = _Waiter(threading.current_thread(), until_us, _Answered(done))
        give_up = time.monotonic() + PATIENCE_S
        try:
            while done.locked() and time.monotonic() < give_up:
                time.sleep(_LOOK_S)
            waiter.waking = None  # at work, before the lock looks as if there were no answer
            if done.acquire(blocking=False):
                return True
        finally:
            if before is None:
                del self._waiters[me]
            else:
                self._waiters[me] = before
        raise NotAtRest(
            f"a call has waited {PATIENCE_S:g} s for an answer that takes time: nobody moves the clock"
        )

    def rest(self) -> None:
        """Return when all of them wait, or have ended.

        Raises:
            NotAtRest: one is at work for too long.
        """
        now_us = self._mono_us()
        for waiter in list(self._waiters.values()):
            if now_us >= waiter.until_us:  # its time is over
                waiter.wake()
        give_up = time.monotonic() + PATIENCE_S
        while (busy := self._busy()) is not None:
            if time.monotonic() > give_up:
                frame = sys._current_frames().get(busy.ident or 0)
                where = traceback.extract_stack(frame)[-1] if frame is not None else "nowhere"
                raise NotAtRest(
                    f"the thread {busy.name!r} is at work for {PATIENCE_S:g} s already, at {where}"
                )
            time.sleep(_LOOK_S)

    def _busy(self) -> threading.Thread | None:
        while True:
            latest = self._latest
            busy = self._seen_busy()
            # Whoever hands over and then waits may have been looked at in between: neither was seen.
            if busy is not None or self._latest is latest:
                return busy

    def _seen_busy(self) -> threading.Thread | None:
        for thread in list(
            self._handed_over.values()
        ):  # first: whoever begins is a waiter before it is taken out
            return thread
        for number, waiter in list(self._waiters.items()):
            if not waiter.thread.is_alive():
                self._waiters.pop(number, None)
            elif waiter.is_busy() or self._mono_us() >= waiter.until_us:
                return waiter.thread
        return None

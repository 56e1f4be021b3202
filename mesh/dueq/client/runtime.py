"""The I/O thread of a client: it steps the session machine and carries out its effects.

User threads only put events into a queue and wake the thread; answers come back by a callback in the I/O
thread, which must be short.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, Final

import zmq

from dueq.client.core.ports.events import Close, Event
from dueq.client.host import Answer, Done, SessionHost, Waking
from dueq.client.logs import log
from dueq.client.sockets import Sockets, check_files
from dueq.errors import Broken
from dueq.instant import Now

IDLE_MS: Final = 1000
LAZY_US: Final = 2_000

_contexts: dict[int, zmq.Context[Any]] = {}
_contexts_lock = threading.Lock()
_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _leave_behind() -> None:
    """Set in a forked process, where its parent's runtimes do not work. So calls need not compare process
    ids.
    """
    global _contexts_lock
    _contexts_lock = threading.Lock()  # a thread that does not exist here may hold the old one
    for runtime in list(_runtimes):
        runtime.forked = True


os.register_at_fork(after_in_child=_leave_behind)


def _mono_us() -> int:
    """The machine's clock for durations (CLOCK_BOOTTIME), µs."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def _context() -> zmq.Context[Any]:
    """One ZeroMQ context per process, since a context does not survive a fork."""
    with _contexts_lock:
        pid = os.getpid()
        if pid not in _contexts:
            _contexts[pid] = zmq.Context()
            _contexts[pid].set(zmq.MAX_SOCKETS, 16_384)
        return _contexts[pid]


class Runtime(SessionHost):
    """A session machine in a thread of its own, with sockets and the machine's clocks. Thread-safe.

    Raises:
        OSError, RuntimeError: the machine has no descriptors, or no thread, left for this process.
    """

    def __init__(self, endpoints: Sequence[str]) -> None:
        super().__init__(endpoints, os.urandom(16), random.Random())
        if os.getpid() not in _contexts:
            check_files()
        log.make()  # the I/O thread imports nothing: who forks could not know when
        _runtimes.add(self)
        self._sleeping = False
        self._wake_at_us = 0
        self._wake_lock = threading.Lock()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="dueq-client", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the machine has no thread left for this process
            os.close(self._wake_fd)
            raise

    # -------------------------------------------------------------- any thread

    def now(self) -> Now:
        """See `SessionHost`."""
        return Now(time.time_ns() // 1000, _mono_us())

    def mono_us(self) -> int:
        """See `SessionHost`."""
        return _mono_us()

    def wait(self, waking: Waking, seconds: float | None) -> None:
        """See `SessionHost`."""
        waking.wait(seconds)

    def wait_done(self, done: Done, seconds: float) -> bool:
        """See `SessionHost`."""
        return done.acquire(timeout=seconds)

    def sleep(self, seconds: float) -> None:
        """See `SessionHost`."""
        time.sleep(seconds)

    async def wait_in_loop(self, event: asyncio.Event, seconds: float | None) -> None:
        """See `SessionHost`."""
        # Until Python 3.12 `asyncio.wait_for` hides that the task was cancelled just as the event was set.
        over = None if seconds is None else asyncio.get_running_loop().call_later(seconds, event.set)
        try:
            await event.wait()
        finally:
            if over is not None:
                over.cancel()

    async def answer_in_loop(self, future: asyncio.Future[Answer]) -> Answer:
        """See `SessionHost`."""
        return await future

    async def sleep_in_loop(self, seconds: float) -> None:
        """See `SessionHost`."""
        await asyncio.sleep(seconds)

    def submit(self, event: Event) -> None:
        """Send an event at once."""
        self._queue.append(event)
        if self._sleeping:
            self._wake()

    def submit_lazily(self, event: Event) -> None:
        """Send an event within 2 ms: many of them cost one awakening."""
        self._queue.append(event)
        if self._sleeping and self._wake_at_us - _mono_us() > LAZY_US:
            self._wake()

    def stop(self, timeout: float = 5.0) -> None:
        """Close the links and end the thread; calls that wait fail with ClientClosed."""
        self._stopping = True
        if not self.forked and not self._ended:
            self.submit(Close())
            self._wake()
            if threading.current_thread() is not self._thread:
                self._thread.join(timeout)

    def _wake(self) -> None:
        self._sleeping = False
        with self._wake_lock:
            if not self._ended:
                os.eventfd_write(self._wake_fd, 1)

    # -------------------------------------------------------------- the I/O thread

    def _run(self) -> None:
        sockets = Sockets(_context(), self._wake_fd)
        try:
            while not (self._stopping and not self._queue):
                self._turn(sockets)
        except Exception as error:
            # The last resort: callers get this error and do not wait for ever.
            self._failure = Broken(f"the client's session machine failed: {error!r}")
            log.exception("client.broken", error=repr(error))
        finally:
            self._stopping = True
            sockets.close_all()
            self._end()

    def _turn(self, sockets: Sockets) -> None:
        happened, woken = sockets.wait(self._sleep_ms())
        self._sleeping = False
        if woken:
            os.eventfd_read(self._wake_fd)
        self._step(happened, sockets)

    def _sleep_ms(self) -> int:
        """Announce the sleep and return how long it may last."""
        now_us, deadline_us = _mono_us(), self._core.next_deadline_us
        sleep_us = IDLE_MS * 1000 if deadline_us is None else deadline_us - now_us
        longest_us = IDLE_MS * 1000
        if self._has_delivered:
            # Its ack will soon be submitted lazily: it need not wake this thread if that wakes by itself in time, be it
            # by the next push. A busy consumer has a turn less for each push.
            longest_us, self._has_delivered = LAZY_US, False
        sleep_us = min(max(sleep_us, 0), longest_us)
        self._wake_at_us = now_us + sleep_us
        self._sleeping = True
        return 0 if self._queue else -(-sleep_us // 1000)

    def _end(self) -> None:
        with self._wake_lock:
            self._ended = True
            os.close(self._wake_fd)
        self._fail_all()

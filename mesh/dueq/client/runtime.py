"""The I/O thread of a client: it steps the session machine and carries out its effects.

User threads only put events into a queue and wake the thread; answers come back by a callback in the I/O
thread, which must be short. Nothing here decides anything.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import zmq

from dueq.client.core import ClientCore
from dueq.client.core.ports import effects
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.events import Close, Event, Settle
from dueq.client.inbox import Inbox
from dueq.client.logs import log
from dueq.client.sockets import Sockets
from dueq.errors import Broken, ClientClosed, DueqError
from dueq.instant import Now
from dueq_codecs.records import RecordKind

Answer = effects.Completed | effects.Failed
IDLE_MS: Final = 1000
LAZY_US: Final = 2_000

_contexts: dict[int, zmq.Context[Any]] = {}
_contexts_lock = threading.Lock()
_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _leave_behind() -> None:
    """Set in a forked process, where its parent's runtimes do not work. So calls need not compare process
    ids.
    """
    for runtime in list(_runtimes):
        runtime.forked = True


os.register_at_fork(after_in_child=_leave_behind)


def mono_us() -> int:
    """The machine's clock for durations (CLOCK_BOOTTIME), µs."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def read_now() -> Now:
    """The instant of a step."""
    return Now(time.time_ns() // 1000, mono_us())


def _context() -> zmq.Context[Any]:
    """One ZeroMQ context per process, since a context does not survive a fork."""
    with _contexts_lock:
        pid = os.getpid()
        if pid not in _contexts:
            _contexts[pid] = zmq.Context()
            _contexts[pid].set(zmq.MAX_SOCKETS, 16_384)
        return _contexts[pid]


class Runtime:
    """One client's session machine at work. Thread-safe.

    Attributes:
        client_id: 16 random bytes.
        forked: this process is a fork of the one that made it, and the thread did not follow.
    """

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.forked = False
        _runtimes.add(self)
        self.client_id = os.urandom(16)
        self._core = ClientCore(self.client_id, endpoints, random.Random())
        self._calls = itertools.count(1)
        self._queue: deque[Event] = deque()
        self._answers: dict[int, Callable[[Answer], None]] = {}
        self._inboxes: dict[bytes, Inbox] = {}
        self._sleeping = False
        self._wake_at_us = 0
        self._wake_lock = threading.Lock()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False
        self._ended = False
        self._failure: DueqError = ClientClosed("the client is closed")
        self._thread = threading.Thread(target=self._run, name="dueq-client", daemon=True)
        self._thread.start()

    # -------------------------------------------------------------- any thread

    def call(
        self, build: Callable[[int, int], Event], timeout: float, answer: Callable[[Answer], None]
    ) -> int:
        """Send an event that is answered once, within `timeout` seconds; `answer` runs in the I/O thread."""
        call = next(self._calls)
        self._answers[call] = answer
        if self._stopping:
            self._answers.pop(call, None)
            raise self.failure
        self.submit(build(call, mono_us() + int(timeout * 1_000_000)))
        if self._ended and self._answers.pop(call, None) is not None:
            raise self.failure
        return call

    @property
    def failure(self) -> DueqError:
        """Why there are no more answers."""
        return type(self._failure)(*self._failure.args)

    def submit(self, event: Event) -> None:
        """Send an event at once."""
        self._queue.append(event)
        if self._sleeping:
            self._wake()

    def submit_lazily(self, event: Event) -> None:
        """Send an event within 2 ms: many of them cost one awakening."""
        self._queue.append(event)
        if self._sleeping and self._wake_at_us - mono_us() > LAZY_US:
            self._wake()

    def add_inbox(self, consumer_id: bytes, inbox: Inbox) -> None:
        """Deliver this consumer's messages there."""
        self._inboxes[consumer_id] = inbox

    def remove_inbox(self, consumer_id: bytes) -> None:
        """Drop what still comes for this consumer."""
        self._inboxes.pop(consumer_id, None)

    @property
    def clock_known(self) -> bool:
        """Mesh time has been measured."""
        return self._core.clock.best is not None

    def mesh_us(self) -> int:
        """Mesh time now, Unix µs."""
        return self._core.clock.mesh_us(read_now())

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
            log.exception("client.broken", error=repr(error))
            self._failure = Broken(f"the client's session machine failed: {error!r}")
        finally:
            self._stopping = True
            sockets.close_all()
            self._end()

    def _turn(self, sockets: Sockets) -> None:
        happened, woken = sockets.wait(self._sleep_ms())
        self._sleeping = False
        if woken:
            os.eventfd_read(self._wake_fd)
        while self._queue:
            happened.append(self._queue.popleft())
        for effect in self._core.step(happened, read_now()):
            self._perform(effect, sockets)

    def _sleep_ms(self) -> int:
        """Announce the sleep and return how long it may last."""
        now_us, deadline_us = mono_us(), self._core.next_deadline_us
        sleep_us = IDLE_MS * 1000 if deadline_us is None else deadline_us - now_us
        sleep_us = min(max(sleep_us, 0), IDLE_MS * 1000)
        self._wake_at_us = now_us + sleep_us
        self._sleeping = True
        return 0 if self._queue else -(-sleep_us // 1000)

    def _perform(self, effect: effects.Effect, sockets: Sockets) -> None:
        if isinstance(effect, effects.Send):
            sockets.send(effect)
        elif isinstance(effect, effects.Completed | effects.Failed):
            answer = self._answers.pop(effect.call, None)
            if answer is not None:
                answer(effect)
        elif isinstance(effect, effects.OpenLink):
            sockets.open(effect.link, effect.endpoint)
        elif isinstance(effect, effects.CloseLink):
            sockets.close(effect.link)
        elif isinstance(effect, effects.Log):
            log.log(_LEVELS[effect.level], effect.event, **effect.fields)
        else:
            inbox = self._inboxes.get(effect.consumer_id)
            if inbox is not None:
                self._fill(inbox, effect)

    def _fill(
        self,
        inbox: Inbox,
        effect: effects.Deliver | effects.Reclaim | effects.LeaseLost | effects.ConsumerFailed,
    ) -> None:
        if isinstance(effect, effects.Deliver):
            inbox.deliver(effect.deliveries)
        elif isinstance(effect, effects.LeaseLost):
            unhandled = inbox.lose(effect.deliveries)
            if effect.returning:
                self._release(effect.consumer_id, unhandled)
        elif isinstance(effect, effects.ConsumerFailed):
            inbox.fail(effect.error)
        else:
            self._release(effect.consumer_id, inbox.reclaim(effect.deliveries))

    def _release(self, consumer_id: bytes, unhandled: list[Delivery]) -> None:
        if unhandled:
            self._queue.append(Settle(consumer_id, RecordKind.RELEASE, unhandled))

    def _end(self) -> None:
        with self._wake_lock:
            self._ended = True
            os.close(self._wake_fd)
        for inbox in list(self._inboxes.values()):
            inbox.fail(self.failure)
        while self._answers:
            call, answer = self._answers.popitem()
            answer(effects.Failed(call, self.failure))


_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}

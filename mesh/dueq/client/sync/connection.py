# Made of aio/connection.py by scripts/generate-faces: write there.
"""The parts of a client share this: the runtime of this process, and how calls are sent and answered."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from dueq import limits
from dueq.client import arguments, calls, times
from dueq.client.calls import Call, Steps
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed
from dueq.client.failures import Failures
from dueq.client.host import SessionHost
from dueq.client.runtime import Runtime
from dueq.client.sync.waiting import Bridges, Pending, sleep, stop
from dueq.errors import ClientClosed, DueqError, Unavailable

T = TypeVar("T")

_CLOSE_S: Final = 5.0
"""How long what dropped consumers have settled may take to be confirmed as the client is closed."""
_AGAIN_S: Final = 0.25
"""Pause before what only reads is asked again."""

_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _leave_behind() -> None:
    """In a forked process a lock may be held by a thread that does not exist there."""
    for connection in list(_connections):
        connection._lock = threading.Lock()


os.register_at_fork(after_in_child=_leave_behind)


class _Consumer(Protocol):
    """A consumer that gives its leases back when the client is closed."""

    def begin_closing(self) -> None: ...

    def close(self) -> None: ...


class Connection:
    """The client's own connection to a mesh; producers and consumers hold it, too.

    Args:
        endpoints: one endpoint, several with commas between, a list, or None: the environment's.
        timeout: seconds that a call may take, unless it says otherwise; None: the default.
        begin: begins what runs the session machine.

    Raises:
        InvalidRequest: there is no endpoint, or one is malformed.

    Attributes:
        timeout: seconds that a call may take, unless it says otherwise.
        bridges: where answers come in.
    """

    def __init__(
        self,
        endpoints: str | Sequence[str] | None,
        timeout: float | None,
        begin: Callable[[Sequence[str]], SessionHost] = Runtime,
    ) -> None:
        self.timeout = times.timeout_s(timeout, limits.DEFAULT_TIMEOUT_S)
        self.bridges = Bridges()
        self._endpoints = arguments.endpoint_list(endpoints)
        self._begin = begin
        self._runtime: SessionHost | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._consumers: weakref.WeakSet[_Consumer] = weakref.WeakSet()
        _connections.add(self)

    def close(self) -> None:
        """Close consumers (their leases go back), then the runtime. Once more does nothing."""
        self._closed = True
        runtime = self._runtime
        if runtime is not None:
            try:
                if not runtime.forked:
                    self._close_consumers(runtime)
            finally:
                stop(runtime)

    def _close_consumers(self, runtime: SessionHost) -> None:
        """Close them all at once, then raise the first error, such as one of a callback."""
        failures, consumers = Failures(), list(self._consumers)
        for consumer in consumers:
            consumer.begin_closing()
        with suppress(ClientClosed):
            dropped = [calls.close_consumer(*each) for each in runtime.take_dropped()]
            for call, sent in [(call, self.send(runtime, call, _CLOSE_S)) for call in dropped]:
                # Those that are open are waited for all the same.
                with failures.kept(), suppress(ClientClosed):
                    self.answer_to(call, sent)
        for consumer in consumers:
            with failures.kept():
                consumer.close()
        failures.raise_first()

    def closes(self, consumer: _Consumer) -> None:
        """Have `close` close this consumer."""
        self._consumers.add(consumer)

    def live(self) -> SessionHost:
        """Return the runtime of this process.

        Raises:
            ClientClosed: the client is closed.
        """
        if self._closed:
            raise ClientClosed("the client is closed")
        runtime = self._runtime
        if runtime is not None and not runtime.forked:
            return runtime
        with self._lock:
            if self._runtime is not None and self._runtime.forked:
                self._consumers = weakref.WeakSet()
                self.bridges = Bridges()
                self._runtime = None
            if self._runtime is None:
                self._runtime = self._begin(self._endpoints)
                weakref.finalize(self, self._runtime.stop, 0.0)
                if self._closed:  # meanwhile: `close` may have found nothing to stop
                    self._runtime.stop(0.0)
                    raise ClientClosed("the client is closed")
            return self._runtime

    def tell(self, event: events.Event) -> None:
        """Hand an event to the runtime, if there is one; nobody waits for an answer."""
        runtime = self._runtime
        if runtime is not None and not runtime.forked and not self._closed:
            runtime.submit(event)

    def run(self, call: Call[T], timeout: float | None) -> T:
        """Send a call and wait for its answer."""
        runtime = self.live()
        if not call.reads:
            return self.run_on(runtime, call, timeout)
        left_s = times.timeout_s(timeout, self.timeout)
        until_us = runtime.mono_us() + int(left_s * 1e6)
        while True:
            try:
                return self.run_on(runtime, call, left_s)
            except Unavailable:
                left_s = (until_us - runtime.mono_us()) / 1e6 - _AGAIN_S
                if left_s <= 0:
                    raise
            sleep(runtime, _AGAIN_S)

    def run_on(self, runtime: SessionHost, call: Call[T], timeout: float | None) -> T:
        """Send a call by this runtime even if the client is closed, and wait for its answer."""
        return self.answer_to(call, self.send(runtime, call, timeout))

    def answer_to(self, call: Call[T], sent: Pending) -> T:
        """Wait for the answer to a call that was sent."""
        answer = sent.answer()
        if isinstance(answer, Completed):
            try:
                return call.finish(answer.value)
            except KeyboardInterrupt:  # nobody gets it
                sent.abandon()
                raise
        raise calls.error_of(answer, call, self.run)

    def follow(self, steps: Steps[T], timeout: float | None) -> T:
        """Run calls one after the other."""
        error: DueqError | None = None
        value: Any = None
        while True:
            try:
                step = steps.throw(error) if error is not None else steps.send(value)
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                error = value = None  # an error that leaves would hold this frame, and this frame the error
            try:
                if isinstance(step, float):
                    sleep(self.live(), step)
                else:
                    value = self.run(step, timeout)
            except DueqError as failed:
                error = failed

    def send(self, runtime: SessionHost, call: Call[Any], timeout: float | None) -> Pending:
        """Send a call; its answer is waited for later."""
        seconds = times.timeout_s(timeout, self.timeout)
        return Pending(runtime, self.bridges, call.build, seconds, call.undo)

    def clock(self, relative: bool, timeout: float | None) -> Callable[[], int]:
        """Return mesh time, Unix µs; measured first if it never was and `relative` (a time counts from now)."""
        runtime = self.live()
        if relative and not runtime.clock_known:
            self.run(calls.measure(), timeout)
        return runtime.mesh_us

"""A run of a handler over a consumer's messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from dueq import limits
from dueq.client import arguments, endings, times
from dueq.client.aio.connection import AsyncConnection
from dueq.client.aio.crew import Crew
from dueq.client.aio.message import AsyncMessage
from dueq.client.aio.waiting import Arrivals, sleep
from dueq.client.core.ports.delivery import Delivery
from dueq.client.endings import Ending
from dueq.client.handling import Handled, Work, check_callable, reason_of
from dueq.client.host import SessionHost
from dueq.client.inbox import Inbox
from dueq.client.logs import log
from dueq.client.times import Seconds
from dueq.errors import ClientClosed, OutcomeUnknown, Unavailable
from dueq_codecs.records import RecordKind

_ATTEMPT_S: Final = 3.0
"""The longest attempt to reach the mesh: who stops the run meanwhile waits for its end."""
_AGAIN_S: Final = 0.5
"""Pause before another one."""


class _Source(Protocol):
    """The consumer behind a run."""

    topic: str
    stopping: bool
    _connection: AsyncConnection
    _arrivals: Arrivals
    _inbox: Inbox
    _lease_ms: int
    _on_receipt: bool

    async def _live(self, timeout: float | None = None) -> SessionHost: ...
    async def _take(self, number: int, mono_us: int) -> list[AsyncMessage]: ...
    def _tell_of_lost(self) -> None: ...
    async def _settle(
        self,
        kind: RecordKind,
        deliveries: Sequence[Delivery],
        ending: Ending,
        wait: bool,
        timeout: float | None,
    ) -> object: ...


class AsyncRun:
    """Everything but the handlers themselves happens in the task that runs it: it takes, settles and extends.

    Args:
        consumer: whose messages.
        handler: takes a message.
        workers: handlers at once, at most.
        drain: seconds that handlers get to end.

    Raises:
        InvalidRequest: a value is outside its limits.
    """

    def __init__(
        self, consumer: _Source, handler: Callable[[AsyncMessage], object], workers: int, drain: Seconds
    ) -> None:
        check_callable(handler)
        self._workers = arguments.count(workers, "workers", 1, limits.RUN_WORKERS_MAX)
        self._drain_us = times.duration_ms(drain, "drain", 0, limits.RUN_DRAIN_MS_MAX) * 1000
        self._consumer = consumer
        self._crew = Crew(handler, consumer._arrivals.wake)
        self._lease_us = consumer._lease_ms * 1000
        self._beat_us = min(self._lease_us // 8, 1_000_000)
        self._next_beat_us = 0
        self._look_s: float | None = None
        self._at_work: set[Work] = set()
        self._handled = self._failed = self._released = 0

    async def to_its_end(self, look_s: float | None) -> Handled:
        """Run until the consumer stops or fails, and drain.

        Args:
            look_s: look this often, seconds, whether the consumer stops; None: who stops it wakes it.
        """
        self._look_s = look_s
        try:
            host = await self._attach()
            if host is not None:
                await self._serve_and_settle(host)
        finally:
            self._crew.dismiss()
        if self._consumer._inbox.failure is not None:
            raise self._consumer._inbox.failure
        if self._consumer._inbox.closed:
            raise ClientClosed(
                f"the consumer of {self._consumer.topic!r} was closed during its run: of its messages "
                f"{self._handled} were handled, {self._failed} failed, {self._released} were unfinished"
            )
        return Handled(self._handled, self._failed, self._released)

    async def _attach(self) -> SessionHost | None:
        while not self._consumer.stopping:
            try:
                return await self._consumer._live(min(self._consumer._connection.timeout, _ATTEMPT_S))
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("run.not_attached", topic=self._consumer.topic, error=repr(error))
                await sleep(self._consumer._connection.live(), _AGAIN_S)
        return None

    async def _serve_and_settle(self, host: SessionHost) -> None:
        try:
            await self._serve(host)
            self._leave(host.mono_us())
        finally:
            # Whatever ends the run: what was done up to now would be done twice if it were given back.
            await self._end_all(host)
        await self._give_back()

    async def _serve(self, host: SessionHost) -> None:
        consumer = self._consumer
        until_us: int | None = None
        while True:
            consumer._arrivals.clear()
            self._tell_of_lost()
            await self._end_all(host)
            now_us = host.mono_us()
            if until_us is None and (consumer.stopping or consumer._inbox.closed or consumer._inbox.failure):
                until_us = now_us + self._drain_us
            if until_us is None:
                await self._begin(host)
            elif not self._at_work or now_us >= until_us:
                break
            if now_us >= self._next_beat_us:
                await self._beat(now_us)
            if not self._crew.ended:
                await consumer._arrivals.wait(host, self._rest_s(host.mono_us(), until_us))

    def _tell_of_lost(self) -> None:
        """Have the user told of lost leases; the run goes on if that fails."""
        try:
            self._consumer._tell_of_lost()
        except Exception as error:
            log.warning("run.callback_failed", topic=self._consumer.topic, exc_info=error)

    def _rest_s(self, now_us: int, until_us: int | None) -> float | None:
        ends = [self._next_beat_us] if self._at_work else []
        if until_us is not None:
            ends.append(until_us)
        rests = [max(end - now_us, 0) / 1e6 for end in ends]
        return min(rests if self._look_s is None else [*rests, self._look_s], default=None)

    async def _begin(self, host: SessionHost) -> None:
        free = self._workers - len(self._at_work)
        if not free:
            return
        try:
            taken = await self._consumer._take(free, host.mono_us())
        except (Unavailable, OutcomeUnknown) as error:
            log.warning("run.not_taken", topic=self._consumer.topic, error=repr(error))
            return
        now_us = host.mono_us()
        for message in taken:
            work = Work(message, now_us, self._lease_us)
            if work.extend_us <= now_us or not self._at_work:
                self._next_beat_us = min(self._next_beat_us, now_us)
            self._at_work.add(work)
            self._crew.begin(work, host)

    async def _end_all(self, host: SessionHost) -> None:
        while self._crew.ended:
            await self._end(host, *self._crew.ended.popleft())

    async def _end(self, host: SessionHost, work: Work, error: BaseException | None) -> None:
        self._at_work.discard(work)
        message = work.message
        named = {"topic": self._consumer.topic, "message": message.id}
        if error is None:
            self._handled += 1
        else:
            self._failed += 1
            log.warning("handler.failed", **named, attempt=message.attempt, exc_info=error)
            host.handler_failed(error)
        if message.lost and not self._consumer._on_receipt:
            log.warning("handler.lease_lost", **named, failed=error is not None)
        elif error is None:
            await self._settle(RecordKind.ACK, [work], Ending())
        else:
            await self._settle(RecordKind.NACK, [work], endings.nack(None, reason_of(error), False))

    async def _beat(self, now_us: int) -> None:
        """Extend what is at half of its lease; name handlers that take long."""
        self._next_beat_us = now_us + self._beat_us
        late = [work for work in self._at_work if work.extend_us <= now_us and not work.message.lost]
        for work in late:
            work.extend_us = now_us + self._lease_us // 2
        await self._settle(RecordKind.EXTEND, late, Ending(self._lease_us // 1000))
        for work in self._at_work:
            if work.name_us <= now_us:
                work.name_us = now_us + limits.HANDLER_SLOW_MS * 1000
                self._warn("handler.slow", work, now_us)

    def _leave(self, now_us: int) -> None:
        self._crew.dismiss()
        for work in self._at_work:
            self._warn("handler.unfinished", work, now_us)

    async def _give_back(self) -> None:
        self._released = len(self._at_work)
        left = [work for work in self._at_work if not work.message.lost]
        await self._settle(RecordKind.RELEASE, left, Ending())

    def _warn(self, event: str, work: Work, now_us: int) -> None:
        seconds = round((now_us - work.begun_us) / 1e6, 1)
        log.warning(event, topic=self._consumer.topic, message=work.message.id, seconds=seconds)

    async def _settle(self, kind: RecordKind, works: Sequence[Work], ending: Ending) -> None:
        """Settle without waiting; nothing of a consumer that was closed, or whose messages were acked before."""
        if not works or self._consumer._on_receipt or self._consumer._inbox.closed:
            return
        deliveries = [work.message._delivery for work in works]
        try:
            await self._consumer._settle(kind, deliveries, ending, False, None)
        except ClientClosed as error:
            log.warning("run.not_settled", topic=self._consumer.topic, error=repr(error))

"""Receiving and settling."""

from __future__ import annotations

import copy
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from dueq import limits
from dueq.client import arguments, calls, endings, pulls, times
from dueq.client.aio.connection import AsyncConnection
from dueq.client.aio.message import AsyncMessage
from dueq.client.aio.running import AsyncRun
from dueq.client.aio.waiting import Arrivals, Lock, Pending, acquired
from dueq.client.calls import Call
from dueq.client.core.ports import events
from dueq.client.core.ports.delivery import Delivery
from dueq.client.endings import PLAIN, Ending
from dueq.client.failures import Failures
from dueq.client.handling import Handled, ending_signals
from dueq.client.host import SessionHost
from dueq.client.inbox import Inbox
from dueq.client.logs import log
from dueq.client.times import Seconds
from dueq.errors import ClientClosed, DueqError, InvalidRequest, StaleLease, Unavailable
from dueq_codecs.records import Outcome, RecordKind

CLOSE_S: Final = 5.0
_NEVER_US: Final = -(1 << 62)
_OPEN_S: Final = 1.0
"""What a first `receive` gets at least to open the consumer: else one that does not wait would never open it."""


class AsyncConsumer:
    """Receives a topic's messages, each under a lease. For the tasks of one loop.

    The client's own thread keeps leases alive at the brokers; the handler must settle each message
    before its lease ends, or extend it.

    Attributes:
        topic: its name.
        name: None, if it has none.
        consumer_id: 16 bytes: of the name, or drawn anew.
        on_lease_lost: called with a message whose lease was lost.
        stopping: a run takes no more messages.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        topic: str,
        lease: Seconds,
        credit: int,
        credit_bytes: int,
        on_lease_lost: Callable[[AsyncMessage], object] | None,
        ack: str = "manual",
        name: str | None = None,
        detached: bool = False,
    ) -> None:
        self.topic = arguments.topic_name(topic)
        self.name = name
        self._detached = arguments.detached(detached, name)
        self._on_receipt = arguments.one_of(ack, "ack", ("manual", "on_receipt")) == "on_receipt"
        self.consumer_id = os.urandom(16) if name is None else pulls.consumer_id_of(self.topic, name)
        arguments.callback(on_lease_lost, "on_lease_lost")
        self.on_lease_lost = on_lease_lost
        self._lease_ms = times.duration_ms(lease, "lease", limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        self._credit = arguments.count(credit, "credit", 1, limits.CONSUMER_LEASES_MAX)
        self._credit_bytes = arguments.count(credit_bytes, "credit_bytes", 1, 1 << 40)
        self._connection = connection
        self._process = os.getpid()
        self._arrivals = Arrivals(connection.bridges, self._tell_of_lost)
        self._inbox = Inbox(self._arrivals.wake)
        self._opening = Lock()
        self._run_lock = threading.Lock()
        self._runtime: SessionHost | None = None
        self._give_up_us, self._tried_us = 0, _NEVER_US
        self._closing: tuple[Call[None], Pending | None, SessionHost] | None = None
        self._closed = False
        self.stopping = False

    async def __aenter__(self) -> Self:
        await self._live()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        """Hand out messages one by one, waiting for them, until the consumer is closed."""
        while not self._inbox.closed:
            for message in await self._receive(1, None):
                yield message

    async def receive(self, max_messages: int = 100, timeout: float | None = None) -> list[AsyncMessage]:
        """Return the messages that have come, waiting for at least one.

        The consumer never holds more than its `credit` of messages and `credit_bytes` of payloads that are not settled.

        Args:
            max_messages: the most to return.
            timeout: seconds to wait; None for the client's default. The first use opens the consumer, and takes up to a
                second for that even if there is less time.

        Returns:
            Messages in the call they came; empty when none came in time, or the consumer was closed meanwhile.

        Raises:
            TopicNotFound: the topic was deleted.
            Superseded: another process has opened a consumer of this name.
            Unavailable: the first use, and in the client's default time no broker was reached (Disconnected), or, for a
                consumer with a name, none that knows the mesh's time.
            ClientClosed: the consumer was closed before.
        """
        number = arguments.count(max_messages, "max_messages", 1, 1 << 31)
        if self._closed:
            raise ClientClosed(f"the consumer of {self.topic!r} is closed")
        return await self._receive(number, times.timeout_s(timeout, self._connection.timeout))

    async def ack(
        self, batch: Iterable[AsyncMessage], *, wait: bool = True, timeout: float | None = None
    ) -> list[Outcome]:
        """Settle many messages as done.

        Args:
            batch: messages of this consumer, each in its hands.
            wait: return when committed on the in-sync replicas. Without it, return at once: the acks are sent
                within 100 ms and repeated until confirmed; `close` waits for that. A refusal (the lease was
                over) then goes to `on_lease_lost`.
            timeout: with `wait`: seconds to wait; None for the client's default.

        Returns:
            One outcome per message; empty without `wait`.

        Raises:
            InvalidRequest: it is no batch of this consumer's messages; nothing was settled.
            StaleLease: with `wait`: some leases were over; all other messages are settled.
            OutcomeUnknown: with `wait`: no answer in time; it goes on being repeated.
            ClientClosed: the consumer is closed.
        """
        return await self._settle(RecordKind.ACK, self._deliveries(batch), PLAIN, wait, timeout)

    async def nack(
        self,
        batch: Iterable[AsyncMessage],
        *,
        delay: Seconds | None = None,
        reason: str = "",
        dead: bool = False,
        headers: Mapping[str, str] | None = None,
        wait: bool = True,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """Give many messages back, as `AsyncMessage.nack` does; waits, returns and raises as `ack`."""
        return await self._settle(
            RecordKind.NACK,
            self._deliveries(batch),
            endings.nack(delay, reason, dead, headers),
            wait,
            timeout,
        )

    async def release(
        self,
        batch: Iterable[AsyncMessage],
        *,
        delay: Seconds = 0.0,
        wait: bool = True,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """Give many messages back uncounted, as `AsyncMessage.release` does; waits, returns and raises as `ack`."""
        return await self._settle(
            RecordKind.RELEASE, self._deliveries(batch), endings.release(delay), wait, timeout
        )

    async def extend(
        self,
        batch: Iterable[AsyncMessage],
        seconds: Seconds,
        *,
        wait: bool = True,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """Let many leases end `seconds` from now; waits, returns and raises as `ack`."""
        return await self._extend(self._deliveries(batch), seconds, wait, timeout)

    async def run(
        self, handler: Callable[[AsyncMessage], object], workers: int = 8, *, drain: Seconds = 30.0
    ) -> Handled:
        """Have `handler` called with each message until `stop`, SIGTERM or SIGINT; then close the consumer.

        A message is acked when its handler returns. If it raises, the message is given back by the topic's back-off
        with the exception as its reason. Its lease is extended while the handler works. The signals end a run in
        the main thread only, which has its old handlers back afterwards.

        Args:
            handler: takes a message. With AsyncClient it may be a plain function, which the loop's executor runs.
            workers: handlers at once, at most: 1–1,024; no more messages are taken.
            drain: seconds that handlers get at the end. What is unfinished then is released and named in the log.

        Returns:
            How many messages were handled, failed and released.

        Raises:
            InvalidRequest: a value is outside its limits, the handler cannot be run, or another run goes on.
            TopicNotFound: the topic was deleted; handlers were drained.
            Superseded: another process has opened a consumer of this name; handlers were drained.
            ClientClosed: the consumer was closed; handlers were drained.
        """
        running = AsyncRun(self, handler, workers, drain)
        if not self._run_lock.acquire(blocking=False):
            raise InvalidRequest(
                f"the consumer of {self.topic!r} runs a handler already: one run has many workers"
            )
        with ending_signals(self._note_signal) as look_s:
            try:
                return await running.to_its_end(look_s)
            finally:
                self._run_lock.release()
                await self._close_after_run()

    def stop(self) -> None:
        """End `run`, now or before it begins; may be called from any thread."""
        self.stopping = True
        self._arrivals.wake()

    async def close(self, timeout: float = CLOSE_S) -> None:
        """Confirm what was settled, give back everything else at once. Once more does nothing.

        What no broker has confirmed in time is not repeated any more: such a message may come again.
        With detached leases, what you have received and not settled stays leased, until its lease runs out.

        Args:
            timeout: seconds that this may take.
        """
        self.begin_closing(timeout)
        closing, self._closing = self._closing, None
        if closing is None:
            return
        call, sent, runtime = closing
        try:
            if sent is not None:
                await self._connection.answer_to(call, sent)
        except ClientClosed:
            pass
        finally:
            runtime.remove_inbox(self.consumer_id)
            self._tell_of_lost()

    def begin_closing(self, timeout: float = CLOSE_S) -> None:
        """Begin what `close` waits for: several consumers are closed at once. Once more does nothing.

        Args:
            timeout: seconds that it may take.
        """
        if self._closed:
            return
        self._closed = True
        runtime = self._runtime
        if runtime is not None and runtime.forked:
            return  # the parent may have held the inbox's locks when it forked
        unhandled = self._inbox.close()
        if runtime is None:
            return
        call, sent = calls.close_consumer(self.consumer_id, unhandled), None
        with suppress(ClientClosed):
            sent = self._connection.send(runtime, call, timeout)
        self._closing = call, sent, runtime

    @property
    def attached(self) -> bool:
        """Whether it has asked for messages."""
        return self._runtime is not None

    # -------------------------------------------------------------- inside

    def _note_signal(self) -> None:
        self.stopping = True

    async def _close_after_run(self) -> None:
        """Close; what a run returns or raises matters more than an error of that."""
        try:
            await self.close()
        except DueqError as error:
            log.warning("run.not_closed", topic=self.topic, error=repr(error))

    def _mono_us(self) -> int:
        """The clock for durations, µs; for messages, which come once the consumer has attached."""
        assert self._runtime is not None
        return self._runtime.mono_us()

    async def _live(self, timeout: float | None = None) -> SessionHost:
        """Attach on first use, within so many seconds; None: the client's default."""
        self._stay()
        async with self._opening:
            return self._runtime or await self._open(timeout)

    async def _live_within(self, timeout: float | None) -> tuple[SessionHost, float | None] | None:
        """Attach on first use, and return what is left of the caller's time; None: it is over.

        Who asks again and again hears why, once the client's default is over.
        """
        if timeout is None or self._runtime is not None:
            return await self._live(), timeout
        self._stay()
        host, default = self._connection.live(), self._connection.timeout
        begun_us = host.mono_us()
        until_us = begun_us + int(max(timeout, min(_OPEN_S, default)) * 1e6)
        if not await acquired(self._opening, (until_us - begun_us) / 1e6):
            return None  # whoever opens it meanwhile hears why, if that fails
        try:
            asked_us = host.mono_us()
            if asked_us > self._tried_us + int(default * 1e6):
                self._give_up_us = asked_us + int(default * 1e6)
            runtime = self._runtime or await self._open(max(until_us - asked_us, 0) / 1e6)
        except Unavailable:
            self._tried_us = host.mono_us()
            if self._tried_us < self._give_up_us:
                return None
            self._tried_us = _NEVER_US
            raise
        finally:
            self._opening.release()
        return runtime, timeout - (runtime.mono_us() - begun_us) / 1e6

    def _stay(self) -> None:
        """Do nothing in a forked process, where nobody may be left who ends an opening that goes on."""
        if os.getpid() != self._process:
            raise ClientClosed("a consumer does not follow its client into a forked process: make a new one")

    async def _open(self, timeout: float | None) -> SessionHost:
        if self._closed:
            raise ClientClosed(f"the consumer of {self.topic!r} is closed")
        runtime, life = self._connection.live(), 0
        if self.name is not None:
            begun_us = runtime.mono_us()
            life = pulls.new_life((await self._connection.clock(True, timeout))())
            if timeout is not None:
                timeout = max(timeout - (runtime.mono_us() - begun_us) / 1e6, 0.0)
        self._arrivals.begin()
        runtime.add_inbox(self.consumer_id, self._inbox)
        call = calls.open_consumer(
            self.consumer_id,
            self.topic,
            self._credit,
            self._credit_bytes,
            self._lease_ms,
            life,
            self._detached,
        )
        try:
            await self._connection.run(call, timeout)
        except BaseException:
            self._let_go(runtime)
            raise
        self._connection.closes(self)
        weakref.finalize(self, runtime.drop, self.consumer_id, self._inbox).atexit = False
        self._runtime = runtime
        if self._closed:  # meanwhile, by somebody who did not know that it would be open
            self._let_go(runtime)
        return runtime

    def _let_go(self, runtime: SessionHost) -> None:
        """Nobody has this consumer; if it is open, or opens, it would take messages again and again."""
        runtime.remove_inbox(self.consumer_id)
        with suppress(DueqError):
            self._connection.send(runtime, calls.close_consumer(self.consumer_id, ()), CLOSE_S)

    async def _receive(self, number: int, timeout: float | None) -> list[AsyncMessage]:
        # The usual case first: a loop that takes messages one by one pays for this with each of them.
        runtime, inbox = self._runtime, self._inbox
        if runtime is None or runtime.forked:
            attached = await self._live_within(timeout)
            if attached is None:
                return []
            runtime, timeout = attached
        # Not after taking: a task that is cancelled then would have taken in vain.
        await self._arrivals.give_way()
        if inbox.lost:
            self._tell_of_lost()
        taken = inbox.take(number, runtime.mono_us()) or await self._wait(runtime, number, timeout)
        return await self._handed(taken)

    async def _take(self, number: int, mono_us: int) -> list[AsyncMessage]:
        """Take what is there."""
        return await self._handed(self._inbox.take(number, mono_us))

    async def _handed(self, taken: list[Delivery]) -> list[AsyncMessage]:
        if self._on_receipt and taken:
            taken = await self._acked(taken)
        return [AsyncMessage(self, delivery) for delivery in taken]

    async def _acked(self, taken: list[Delivery]) -> list[Delivery]:
        """Ack messages before anybody sees them; returns those whose ack is committed."""
        try:
            await self._settle(RecordKind.ACK, taken, PLAIN, True, None)
        except StaleLease as stale:
            pairs = zip(taken, stale.outcomes, strict=True)
            return [delivery for delivery, outcome in pairs if outcome is Outcome.DONE]
        return taken

    async def _wait(self, runtime: SessionHost, number: int, timeout: float | None) -> list[Delivery]:
        """Take at least one message; none when time is over or the consumer was closed."""
        until_us = None if timeout is None else runtime.mono_us() + int(timeout * 1e6)
        while True:
            self._arrivals.clear()
            self._tell_of_lost()
            taken = self._inbox.take(number, runtime.mono_us())
            if taken or self._inbox.closed:
                return taken
            if self._inbox.failure is not None:
                raise copy.copy(self._inbox.failure)  # each time the same one would hold the frames of all
            rest = None if until_us is None else (until_us - runtime.mono_us()) / 1e6
            if rest is not None and rest <= 0:
                return []
            await self._arrivals.wait(runtime, rest)

    def _tell_of_lost(self) -> None:
        """Tell the user of every lease that is lost, then raise the first error of that."""
        failures = Failures()
        for delivery in self._inbox.take_lost():
            if self.on_lease_lost is not None:
                with failures.kept():
                    self._arrivals.follow(self.on_lease_lost(AsyncMessage(self, delivery)))
        failures.raise_first()

    def _deliveries(self, batch: Iterable[AsyncMessage]) -> list[Delivery]:
        listed = list(arguments.rows_of(batch, "messages"))
        for message in listed:
            if not isinstance(message, AsyncMessage) or message._consumer is not self:
                raise InvalidRequest(f"a batch has messages of this consumer, not {message!r:.80}")
        return [message._delivery for message in listed]

    async def _extend(
        self, deliveries: Sequence[Delivery], seconds: Seconds, wait: bool, timeout: float | None
    ) -> list[Outcome]:
        lease_ms = times.duration_ms(seconds, "the new lease", limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        return await self._settle(RecordKind.EXTEND, deliveries, Ending(lease_ms), wait, timeout)

    async def _settle(
        self,
        kind: RecordKind,
        deliveries: Sequence[Delivery],
        ending: Ending,
        wait: bool,
        timeout: float | None,
    ) -> list[Outcome]:
        if self._closed:
            raise ClientClosed(f"the consumer of {self.topic!r} is closed: its leases were given back")
        if wait:
            return await self._connection.run(
                calls.settle(self.consumer_id, kind, deliveries, ending), timeout
            )
        runtime = self._runtime
        if runtime is None or runtime.forked:
            runtime = await self._live()
        amount_ms, fate, reason, headers = ending
        runtime.submit_lazily(
            events.Settle(self.consumer_id, kind, deliveries, amount_ms, 0, 0, fate, reason, headers)
        )
        return []

"""One endpoint at one gateway: takes the messages of its topic, sends them, and settles them by the answers.

    consumer ─► filter ─► slot of the window, with enough of the lease left ─► request ─► verdict ─► settled

The lease of a message that waits for a slot is renewed for a while; then it is given back uncounted. So no request is
under way whose lease could end. Leases are detached: a receiver works on, however long this gateway is silent, and
while it ends. A receiver's wish to all gateways (a pause, or that the endpoint is disabled) becomes a setting of the
topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Any, Final, Literal

from dueq import AsyncClient, Outcome, limits
from dueq.client import endpoints
from dueq.client.aio import AsyncConsumer, AsyncMessage
from dueq.client.endpoints import StoredEndpoint
from dueq.errors import DueqError
from dueq.gateway.logs import log
from dueq.gateway.webhooks.answers import Answer, Fate, Verdict, reason_of, verdict
from dueq.gateway.webhooks.counters import Counters
from dueq.gateway.webhooks.outgoing import passes, request_of
from dueq.gateway.webhooks.room import Room
from dueq.gateway.webhooks.sending import Sender
from dueq.gateway.webhooks.window import Window
from dueq_codecs.records import FILTERED
from dueq_codecs.target import TargetRefused

_SPARE_S: Final = limits.WEBHOOK_SPARE_MS / 1000
_NEVER_MS: Final = 1 << 62
"""When a pause ends that has no end, Unix ms."""
_MARGIN_S: Final = 1.0
"""Of a lease beyond the time-out, as a request begins: for the answer to be settled."""
_PUT_BACK_S: Final = 1.0
"""How long a message waits at least that was given back unsent."""
_HELD_S: Final = 5.0
"""Longest time for that in a pause: its topic keeps messages longer, and lets them go when somebody ends the pause."""
_SIFTED_MIN: Final = 128
_SIFTED_MAX: Final = 256
"""Credit for messages that a filter may not want: they wait for a look at what the filter is by now. It is a few
windows, since what the filter wants takes it, too, but not so few messages that the looks would set the pace."""
_BLIND_S: Final = 30.0
"""How long they wait where such looks fail: each time they are leased costs the mesh two records."""
_DOUBT_S: Final = 5.0
"""So it is once no look has found brokers agreed for that time: most hear of a change within milliseconds."""
_UNSETTLED_MIN: Final = 2
"""Least credit beside what may be under way: for acks that are not confirmed yet."""


class Worker:
    """Serves one version of one endpoint.

    Attributes:
        endpoint: what is served.
        counters: what was done.

    Args:
        ask: wants another look at the mesh, soon.
    """

    def __init__(
        self,
        client: AsyncClient,
        sender: Sender,
        endpoint: StoredEndpoint,
        now_us: Callable[[], int],
        counters: Counters,
        room: Room,
        ask: Callable[[], object],
    ) -> None:
        self.endpoint, self.counters = endpoint, counters
        self._client, self._sender, self._now_us = client, sender, now_us
        self._timeout_s = endpoint.document["timeout_ms"] / 1000
        # How often the lease of a message that waits for a slot is renewed: for longer than a request may take.
        self._renewals = math.ceil(self._timeout_s / (_SPARE_S - _MARGIN_S)) + 1
        self._window = Window(endpoint.document["in_flight"])
        most = self._window.most
        self._credit = most + max(most // 2, _UNSETTLED_MIN)
        if endpoint.document["filter"]:
            self._credit += min(max(4 * most, _SIFTED_MIN), _SIFTED_MAX)
        counters.window, counters.held_until_ms = self._window.limit, 0
        self._slot = asyncio.Event()
        self._share = room.share(self._slot.set)
        self._tasks: set[asyncio.Task[None]] = set()
        self._gone = self._stopping = self._left = False
        # When the endpoint was disabled, by the loop's clock; while it is being disabled: not yet.
        self._gone_s = 0.0
        # When the pause of the topic ends by itself, as last seen, Unix ms; 0: it was not paused.
        self._pause_ends_ms = 0
        # When a pause without an end was seen first, Unix ms.
        self._paused_ms = 0
        # Of the topic's settings, as last seen.
        self._settings_version = endpoint.settings_version
        # Until when the receiver has asked for a pause, Unix ms: last since this worker was left.
        self._asked_ms = 0
        # Such an instant that the topic is still to be told of, Unix ms; 0: none.
        self._untold_ms = 0
        # When the topic was told of all that the receiver has asked for, by the loop's clock.
        self._told_s = 0.0
        self._holding: asyncio.Task[None] | None = None
        # When the last look began in which all brokers told the endpoint as it is served here, by the loop's clock.
        self._looked_s = asyncio.get_running_loop().time()
        self._blind, self._look, self._ask = False, asyncio.Event(), ask
        # What the filter does not want, until such a look says that this is the filter.
        self._unwanted: dict[asyncio.Task[None], AsyncMessage] = {}
        # Taken, and neither sent nor settled.
        self._taken: AsyncMessage | None = None
        self._running = asyncio.create_task(self._run(), name=f"webhooks of {endpoint.name}")
        self._running.add_done_callback(self._looked_at)

    @property
    def done(self) -> bool:
        """It takes no more by itself: its topic is gone. Its last requests may be under way still."""
        return self._left or self._running.done()

    def unseen(self) -> None:
        """A look has failed. Messages are sent on: a leader without ZooKeeper has no change of the endpoint either."""
        self._blind = True
        self._has_looked()

    def seen(self, endpoint: StoredEndpoint, began_s: float) -> None:
        """Take how the topic stands, as a look says that began at an instant by the loop's clock.

        A pause with an end may be one that a receiver has asked of another gateway: messages that are here already
        wait, too. When somebody ends a pause of the topic, or makes it shorter, so is the one that the receiver has
        asked for, but not a longer one, which the topic has not been told of.
        """
        counters = self.counters
        if not endpoint.paused or endpoint.paused_until_ms:
            until_ms = endpoint.paused_until_ms if endpoint.paused else 0
            told = counters.held_until_ms <= self._pause_ends_ms or began_s > self._told_s
            counters.held_until_ms = until_ms if told else max(counters.held_until_ms, until_ms)
        ends_ms = (endpoint.paused_until_ms or _NEVER_MS) if endpoint.paused else 0
        # One change of the settings neither ends a pause and begins another, nor makes the topic again.
        same = 0 <= endpoint.settings_version - self._settings_version <= 1
        if ends_ms == _NEVER_MS and not (same and self._pause_ends_ms == _NEVER_MS):
            self._paused_ms = self.now_ms()
        self._pause_ends_ms, self._settings_version = ends_ms, endpoint.settings_version
        if began_s > self._gone_s:  # if it was disabled, it was made again as it was since
            self._gone = False
        if endpoint.agreed:
            self._looked_s = began_s
        self._blind = began_s > self._looked_s + _DOUBT_S
        self._has_looked()

    def _has_looked(self) -> None:
        self._look.set()
        self._look = asyncio.Event()

    def leave(self) -> None:
        """Begin no more requests, and leave the counters to another worker."""
        if not self._stopping:
            self._stopping = True
            self._slot.set()
            self._running.cancel()

    async def stop(self, drain_s: float | None = None) -> None:
        """Begin no more requests, give back what was not sent, and let those under way end.

        Args:
            drain_s: seconds until they are given up, also if it stops already; None: each has a time-out of its own.
        """
        self.leave()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=drain_s)
        for task in self._tasks:
            task.cancel()
        if self._holding is not None:  # what a receiver has asked for is for all gateways
            await asyncio.wait([self._holding], timeout=drain_s)
            self._holding.cancel()
        await asyncio.wait([self._running])

    async def _run(self) -> None:
        consumer = self._client.consumer(
            self.endpoint.topic,
            self._timeout_s + _SPARE_S,
            self._credit,
            credit_bytes=limits.WEBHOOK_CREDIT_BYTES,
            on_lease_lost=self._lease_lost,
            detached=True,
        )
        name, topic = self.endpoint.name, self.endpoint.topic
        log.info("endpoint.served", endpoint=name, topic=topic, version=self.endpoint.version)
        try:
            async for message in consumer:
                self._taken = message
                if not self._may_be_sent(message):
                    await self._give_back(message)
                elif not passes(message, self.endpoint.document["filter"]):
                    self._sift(message)
                elif await self._has_slot(message):
                    self._begin(message)
                else:
                    await self._give_back(message)
                self._taken = None
        except DueqError as error:
            log.error("endpoint.left", endpoint=name, topic=topic, error=str(error))
        finally:
            await asyncio.shield(self._closed(consumer))

    async def _closed(self, consumer: AsyncConsumer) -> None:
        """Close the consumer, so that it takes no more; unsent messages go back. Then wait until nothing is under way.

        A message that was sent, and not answered in time, stays leased: its receiver may be at work on it.
        """
        unsent = [message for task, message in self._unwanted.items() if not task.done()]
        for task in self._unwanted:
            task.cancel()
        if self._taken is not None:
            unsent.append(self._taken)
        with contextlib.suppress(DueqError):
            for message in unsent:
                await message.release(wait=False)
        self._left = True
        with contextlib.suppress(DueqError):
            await consumer.close()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._share.leave()

    def now_ms(self) -> int:
        """Return mesh time, Unix ms."""
        return self._now_us() // 1000

    # -------------------------------------------------------------- one message

    @property
    def _held(self) -> bool:
        """Nothing is to be sent now."""
        return self._gone or self.now_ms() < self.counters.held_until_ms

    def _may_be_sent(self, message: AsyncMessage) -> bool:
        """Whether a message that is here may be sent now: it may have expired since it came, or its topic be paused.

        What comes from a topic that is paused was triggered. No pause without an end holds that, here neither.
        """
        if self._stopping or self._held or 0 < message.expires <= self.now_ms():
            return False
        return self._pause_ends_ms != _NEVER_MS or message.released_at > self._paused_ms

    def _sift(self, message: AsyncMessage) -> None:
        task = asyncio.create_task(self._filter_out(message))
        self._unwanted[task] = message
        task.add_done_callback(self._sifted)

    def _sifted(self, task: asyncio.Task[None]) -> None:
        del self._unwanted[task]
        self._looked_at(task)

    async def _filter_out(self, message: AsyncMessage) -> None:
        """Finish a message that the filter does not want, once a look that began after it came finds the same filter.

        The filter may have been changed, and the message been scheduled for that: such a change is in force by then,
        but need not be known here.
        """
        came_s = asyncio.get_running_loop().time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(message.lease - _MARGIN_S, 0)):
                while self._looked_s <= came_s and not self._blind:
                    self._ask()
                    await self._look.wait()
        if self._looked_s > came_s:
            self.counters.filtered += 1
            await message.ack(reason=FILTERED)
        elif self._blind:
            self.counters.put_back += 1
            await self._end(message, "release", delay=_BLIND_S)
        else:
            await self._give_back(message)

    async def _has_slot(self, message: AsyncMessage) -> bool:
        """Wait for a slot with enough of the lease left, and renew the lease if that takes long.

        Given back, the message would go behind all that is due. Requests end within their time-out, unless they have
        targets: then another gateway may have a slot sooner.
        """
        window, renewals = self._window, self._renewals
        if window.free and self._share.free and message.lease > self._timeout_s + _MARGIN_S:
            return True
        found = False
        try:
            while not (found := await self._slot_within(message.lease - self._timeout_s - _MARGIN_S)):
                if not renewals or not self._may_be_sent(message):
                    break
                if not await self._is_extended(message, self._timeout_s):
                    break
                renewals -= 1
            found = found and self._may_be_sent(message)
        finally:
            if not found:
                self._share.give_up()
        return found

    async def _slot_within(self, seconds: float) -> bool:
        """Wait for a slot for so long, and take up the turn in which one comes; returns whether there is one."""
        if seconds <= 0:
            return False
        window = self._window
        try:
            async with asyncio.timeout(seconds):
                while not (window.free and self._share.free):
                    if not window.free:  # it may have shrunk: a turn would come in vain
                        self._share.give_up()
                    self._slot.clear()
                    await self._slot.wait()
        except TimeoutError:
            return False
        return True

    async def _give_back(self, message: AsyncMessage) -> None:
        self.counters.put_back += 1
        left_s = (self.counters.held_until_ms - self.now_ms()) / 1000
        await self._end(message, "release", delay=min(max(left_s, _PUT_BACK_S), _HELD_S))

    async def _end(self, message: AsyncMessage, how: Literal["ack", "nack", "release"], **more: Any) -> None:
        """Settle a message; once the consumer is closed, by the token of its lease."""
        if not self._left:
            await getattr(message, how)(**more)
            return
        lease = message.id, message.token
        try:
            [outcome] = await self._client.settle(self.endpoint.topic, [lease], how, **more)
        except DueqError as error:
            log.warning("endpoint.not_settled", endpoint=self.endpoint.name, error=str(error))
            return
        if outcome is not Outcome.DONE:
            self._lease_lost(message)

    def _begin(self, message: AsyncMessage) -> None:
        self._window.begin()
        self._share.begin()
        self.counters.in_flight += 1
        task = asyncio.create_task(self._deliver(message))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._window.end()
        self._share.end()
        self.counters.in_flight -= 1
        if not self._stopping:
            self.counters.window = self._window.limit
        self._slot.set()
        self._looked_at(task)

    def _looked_at(self, task: asyncio.Task[None]) -> None:
        """Log the error that a task has ended with."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("endpoint.failed", endpoint=self.endpoint.name, error=repr(error))

    async def _deliver(self, message: AsyncMessage) -> None:
        try:
            request = request_of(message, self.endpoint.document, self.now_ms())
        except TargetRefused as refused:
            found = Verdict(Fate.DEAD, reason_of(Answer(0, str(refused))))  # it may quote a long name
            self._count(found, 0.0)
            await self._settle(message, found)
            return
        if request.timeout_s > self._timeout_s and not (
            await self._is_extended(message, request.timeout_s) and self._may_be_sent(message)
        ):
            await self._give_back(message)
            return
        answer = await request.sent_by(self._sender, self.endpoint.name)
        found = verdict(answer, self.now_ms())
        self._count(found, answer.seconds)
        await self._settle(message, found)

    async def _is_extended(self, message: AsyncMessage, timeout_s: float) -> bool:
        """Extend a lease for a request that may take so long; returns whether that was done."""
        try:
            await message.extend(timeout_s + _SPARE_S, wait=True, timeout=_MARGIN_S)
        except DueqError as error:
            log.info("endpoint.not_extended", endpoint=self.endpoint.name, error=str(error))
            return False
        return True

    async def _settle(self, message: AsyncMessage, found: Verdict) -> None:
        match found.fate:
            case Fate.DONE:
                await self._end(message, "ack")
            case Fate.AGAIN:
                await self._end(message, "nack", reason=found.reason)
            case Fate.DEAD:
                await self._end(message, "nack", dead=True, reason=found.reason)
            case Fate.LATER:
                self._hold(found.delay_s)
                await self._end(message, "release", delay=found.delay_s)
            case Fate.GONE:
                await self._disable(found.reason)
                await self._end(message, "release", delay=_PUT_BACK_S)

    def _count(self, found: Verdict, seconds: float) -> None:
        counters = self.counters
        counters.fates[found.fate] += 1
        counters.seconds += seconds
        if found.fate is Fate.DONE:
            counters.last_success_ms = self.now_ms()
        else:
            counters.last_failure_ms, counters.last_failure = self.now_ms(), found.reason
        if found.fate is Fate.LATER:
            self._window.throttled()
        elif found.overloaded:
            self._window.failed()
        else:
            self._window.answered()

    # -------------------------------------------------------------- what all gateways heed

    def _hold(self, delay_s: float) -> None:
        """Send nothing for a while, here at once, and by any gateway as soon as the topic says so."""
        until_ms = self.now_ms() + int(delay_s * 1000)
        # Once this stops, the counters are those of another worker, whose receiver may be another one.
        held_ms = self._asked_ms if self._stopping else self.counters.held_until_ms
        if until_ms < held_ms + limits.WEBHOOK_DELAY_MS_MIN:
            return
        self._untold_ms, self._told_s = until_ms, math.inf
        if self._stopping:
            self._asked_ms = until_ms
        else:
            self.counters.held_until_ms = until_ms
        if self._holding is None or self._holding.done():
            self._holding = asyncio.create_task(self._hold_topic())

    async def _hold_topic(self) -> None:
        while held_ms := self._untold_ms:
            self._untold_ms = 0
            try:
                done = await self._client.connection.follow(endpoints.hold(self.endpoint, held_ms), None)
            except DueqError as error:
                log.warning("endpoint.not_held", endpoint=self.endpoint.name, error=str(error))
                continue
            if done is not None:
                log.info("endpoint.held", endpoint=self.endpoint.name, until_ms=held_ms)
                if not self._untold_ms:
                    self._told_s = asyncio.get_running_loop().time()

    async def _disable(self, reason: str) -> None:
        """Disable the endpoint, as it was when the request was sent."""
        if self._gone:
            return
        self._gone, self._gone_s = True, math.inf
        try:
            self._gone = await self._client.connection.follow(endpoints.disable(self.endpoint, reason), None)
        except DueqError as error:
            # The next message finds out again.
            self._gone = False
            log.warning("endpoint.not_disabled", endpoint=self.endpoint.name, error=str(error))
            return
        # Otherwise another worker follows, unless the endpoint was made again as it was: then this one goes on.
        if self._gone:
            self._gone_s = asyncio.get_running_loop().time()
            log.error("endpoint.disabled", endpoint=self.endpoint.name, reason=reason)

    def _lease_lost(self, message: AsyncMessage) -> None:
        self.counters.leases_lost += 1
        log.warning("endpoint.lease_lost", endpoint=self.endpoint.name, message=message.id)

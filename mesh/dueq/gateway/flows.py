"""Streams of deliveries: what each has out, and when it may have more.

A stream gets messages while it has fewer unsettled ones than its credit. It learns at once of messages settled at this
gateway. Of those settled elsewhere, and of leases that were extended there, it learns by asking: once it may have no
more, and when a lease is over as far as it knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from dueq import AsyncClient, Outcome, limits
from dueq.client import pulls
from dueq.client.aio.message import AsyncMessage
from dueq.client.pulls import Lease
from dueq.errors import Busy, DueqError, InvalidRequest, MessageNotFound, Superseded, TopicNotFound
from dueq.gateway.receiving import Receiving

_ASK_S: Final = 1.0
"""How long a stream without room waits before it asks about its oldest messages; then twice as long, …"""
_ASK_S_MAX: Final = 16.0
"""… up to this."""
_ASKED_FOR: Final = 8
"""Messages that it asks for at once."""
_UNANSWERED_S: Final = 5.0
"""How long a stream does not ask again about a message of which it has heard nothing; longer, if there are many."""
_AGAIN_S: Final = 1.0
"""How long a stream waits for what it asks about its messages, and when the mesh cannot answer."""


@dataclass(slots=True)
class _Out:
    """A message that was sent: the token of its lease, and when that is over (the loop's time).

    Attributes:
        silent: it was asked about last in vain.
    """

    token: int
    until: float
    silent: bool = False


class Flow:
    """One stream.

    Attributes:
        topic, consumer, lease: as for `pull`.
        out: what it has out, oldest first.
    """

    def __init__(
        self,
        flows: Flows,
        topic: str,
        consumer: str | None,
        lease: timedelta,
        credit: int,
        held: Sequence[Lease],
        order: int,
    ) -> None:
        self._flows = flows
        self.topic, self.consumer, self.lease = topic, consumer, lease
        self._loop = asyncio.get_running_loop()
        # How long these last nobody has said: it is found out by asking.
        until = self._loop.time() + limits.LEASE_MS_MAX / 1000
        self.out = {message_id: _Out(token, until) for message_id, token in held}
        flows.by_lease.update(dict.fromkeys(((topic, message_id) for message_id in self.out), self))
        self._credit = credit
        self._taking: asyncio.Task[list[AsyncMessage]] | None = None
        self._taken_at_most = 0
        self._changed = asyncio.Event()
        self._superseded = False
        self._order = order

    async def more(self) -> list[AsyncMessage]:
        """Wait until there are messages and room for them, and return some; none: the gateway is about to end.

        Raises:
            Superseded: a later stream has its name.
            DueqError: there will be no more, such as TopicNotFound.
        """
        ask_s, ask_at = _ASK_S, 0.0
        while not self._flows.receiving.stopped:
            await self._forget_ended()
            if self._superseded:
                raise Superseded(f"another stream of the name {self.consumer!r} has followed")
            if self._room > 0:
                ask_s, ask_at = _ASK_S, 0.0
                found = await self._take(self._room)
                if found:
                    return found
                continue
            ask_at = ask_at or self._loop.time() + ask_s
            await self._change(max(ask_at - self._loop.time(), 0.0))
            if self._loop.time() >= ask_at:
                await self._ask()
                ask_s, ask_at = min(ask_s * 2, _ASK_S_MAX), 0.0
        return []

    def give(self, credit: int) -> None:
        """Let the stream have this many unsettled messages from now on; messages on their way still come."""
        self._credit = credit
        if self._taking is not None and self._room < self._taken_at_most:
            self._taking.cancel()  # it may have waited for long, and would bring what there is no room for any more
        self._changed.set()

    def sent(self, messages: Sequence[AsyncMessage]) -> None:
        """These are on their way to the client."""
        for message in messages:
            until = self._loop.time() + message.lease
            self.out[message.id] = _Out(message.token, until)
            self._flows.by_lease[self.topic, message.id] = self

    def unsent(self, messages: Sequence[AsyncMessage]) -> None:
        """These did not get that far."""
        for message in messages:
            self.over(message.id)
        self._flows.receiving.release(self.topic, messages)

    def settled(self, message_id: str, token: int, until: float | None) -> None:
        """A lease is over, or lasts until another instant."""
        found = self.out.get(message_id)
        if found is None or found.token != token:
            return
        if until is None:
            self.over(message_id)
        else:
            found.until = until

    def over(self, message_id: str) -> None:
        """A message is not the client's any more."""
        self.out.pop(message_id, None)
        if self._flows.by_lease.get((self.topic, message_id)) is self:
            del self._flows.by_lease[self.topic, message_id]
        self._changed.set()

    def supersede(self) -> None:
        """A later stream has the name; only if that pulls would the mesh end a pull of this one."""
        self._superseded = True
        if self._taking is not None:
            self._taking.cancel()
        self._changed.set()

    def wake(self) -> None:
        """Something is to be looked at."""
        self._changed.set()

    def close(self) -> None:
        """The client is gone: its messages stay leased."""
        for message_id in list(self.out):
            self.over(message_id)
        self._flows.closed(self)

    @property
    def excess(self) -> int:
        """How many messages it has out beyond its credit, which was lowered meanwhile."""
        return max(-self._room, 0)

    @property
    def _room(self) -> int:
        return self._credit - len(self.out)

    async def _take(self, room: int) -> list[AsyncMessage]:
        """Return messages; an empty list: the caller has to look again.

        Messages for which there is no room any more go back, uncounted, and all if a later stream has the name.
        """
        self._taken_at_most = min(room, limits.PULL_ROWS_MAX)
        taking = self._taking = asyncio.create_task(self._pull(self._taken_at_most))
        try:
            await asyncio.wait((taking,))
        except asyncio.CancelledError:
            if taking.cancel():  # it gives back what comes at this instant
                await asyncio.wait((taking,))
            if not taking.cancelled() and taking.exception() is None:
                self._flows.receiving.release(self.topic, taking.result())
            raise
        finally:
            self._taking = None
        if taking.cancelled():
            return []
        try:
            found = taking.result()
        except DueqError as error:
            if not error.retriable:
                raise
            await self._change(error.retry_after if isinstance(error, Busy) else _AGAIN_S)
            return []
        fits = 0 if self._superseded else max(self._room, 0)
        self._flows.receiving.release(self.topic, found[fits:])
        return found[:fits]

    async def _pull(self, most: int) -> list[AsyncMessage]:
        if self.consumer is None:
            return await self._flows.receiving.take(self.topic, most, None, self.lease)
        held = [(message_id, out.token) for message_id, out in self.out.items()]
        return await self._flows.receiving.take(
            self.topic, most, None, self.lease, self.consumer, held, self._order
        )

    async def _change(self, most_s: float) -> None:
        """Wait for a change, or for the end of a lease."""
        now = self._loop.time()
        first = min((out.until for out in self.out.values()), default=now + most_s)
        self._changed.clear()
        if self._flows.receiving.stopped or self._superseded:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(max(min(most_s, first - now), 0)):
                await self._changed.wait()

    async def _ask(self) -> None:
        """Ask about the oldest messages: another gateway may have settled them."""
        await self._look(list(self.out)[:_ASKED_FOR])

    async def _forget_ended(self) -> None:
        """Forget messages whose leases are over; those that another gateway has extended are the client's still.

        Where one has no answer the stream goes on: there may be others that can be delivered meanwhile.
        """
        while ended := [message_id for message_id, out in self.out.items() if out.until <= self._loop.time()]:
            if not await self._look(ended[:_ASKED_FOR]):
                return

    async def _look(self, asked: Sequence[str]) -> bool:
        """Ask how long the leases of messages last, and forget those that are over; returns whether all have answers.

        One that has none takes credit, and is asked for again after all others.
        """
        before = [self.out[message_id] for message_id in asked]
        ends = await asyncio.gather(
            *(self._end_of(message_id, out.token) for message_id, out in zip(asked, before, strict=True))
        )
        now = self._loop.time()
        for out, until in zip(before, ends, strict=True):
            out.silent = until is None
        # However many they are, most of the time is for what can be delivered.
        unanswered_s = _UNANSWERED_S * max(1.0, sum(out.silent for out in self.out.values()) / _ASKED_FOR)
        for message_id, out, until in zip(asked, before, ends, strict=True):
            if self.out.get(message_id) is not out:
                continue
            self.out[message_id] = self.out.pop(message_id)  # others are asked for next
            out.until = max(out.until, now + unanswered_s) if until is None else until
            if until is not None and until <= now:
                self.over(message_id)
        return None not in ends

    async def _end_of(self, message_id: str, token: int) -> float | None:
        """Return until when a lease lasts (the loop's time), 0: it is over; None: there is no answer."""
        try:
            found = await self._flows.client.get(self.topic, message_id, timeout=_AGAIN_S)
            mesh_us = await self._flows.client.connection.clock(False, None)
        except (MessageNotFound, TopicNotFound, InvalidRequest):
            return 0.0  # it is gone, maybe with its topic, or its topic is another one
        except DueqError:
            return None
        if found.token != token or found.lease_ends is None:
            return 0.0
        return self._loop.time() + found.lease_ends / 1000 - mesh_us() / 1e6


class Flows:
    """The streams of one gateway.

    Attributes:
        client: the SDK.
        receiving: where messages come from.
        by_lease: which stream has sent a message, by topic and id.
    """

    def __init__(self, client: AsyncClient, receiving: Receiving) -> None:
        self.client, self.receiving = client, receiving
        self.by_lease: dict[tuple[str, str], Flow] = {}
        self._open: set[Flow] = set()
        self._named: dict[tuple[str, str], Flow] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def open(
        self, topic: str, consumer: str | None, lease: timedelta, credit: int, held: Sequence[Lease] = ()
    ) -> Flow:
        """Begin a stream, which goes on with what it holds of an earlier one; an earlier one of its name ends.

        Raises:
            Unavailable: it has a name, and no broker knows the mesh's time.
        """
        order = 0
        if consumer is not None:
            # All its pulls have it, so none of them, however late, ends a later stream's.
            order = pulls.new_life((await self.client.connection.clock(True, None))())
        flow = Flow(self, topic, consumer, lease, credit, held, order)
        self._open.add(flow)
        if consumer is not None:
            earlier = self._named.get((topic, consumer))
            if earlier is not None:
                earlier.supersede()
            self._named[topic, consumer] = flow
        return flow

    def closed(self, flow: Flow) -> None:
        """A stream has ended."""
        self._open.discard(flow)
        if flow.consumer is not None and self._named.get((flow.topic, flow.consumer)) is flow:
            del self._named[flow.topic, flow.consumer]

    def settled(
        self, topic: str, leases: Sequence[Lease], outcomes: Sequence[Outcome], extended: timedelta | None
    ) -> None:
        """Tell the streams the outcomes of leases.

        Args:
            topic: of the messages.
            leases, outcomes: one outcome for each lease.
            extended: how long the leases last from now on; None: they are over.
        """
        now = asyncio.get_running_loop().time()
        for (message_id, token), outcome in zip(leases, outcomes, strict=True):
            flow = self.by_lease.get((topic, message_id))
            if flow is None or outcome is Outcome.UNKNOWN:
                continue
            lasts = outcome is Outcome.DONE and extended is not None and extended > timedelta(0)
            assert extended is not None or not lasts
            flow.settled(message_id, token, now + extended.total_seconds() if lasts and extended else None)

    def stop(self) -> None:
        """The gateway is about to end."""
        for flow in self._open:
            flow.wake()

"""The requests that wait for messages at this gateway.

    polls and streams without a name ─► one line for each (topic, length of lease) ─► one pull ─► the mesh
    those with a name                ─► a pull of their own                        ─────────────►

An idle line costs the brokers one pull, however many requests stand in it. The messages of the pull go round the
waiting requests, one each. A request that leaves the line leaves nothing behind: messages that come at the same instant
go back, uncounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from dueq import AsyncClient, limits
from dueq.client import pulls
from dueq.client.aio.message import AsyncMessage
from dueq.client.aio.pull_calls import AsyncPulled
from dueq.client.pulls import Lease
from dueq.errors import DueqError

_LONG_S: Final = 3600.0
"""How long a pull of a line waits, if nothing comes: it then begins anew."""
_PATIENCE_S: Final = 10.0
"""How long an answer may take beyond the time that a pull waits."""


class _Waiter:
    """One that stands in a line for at most this many messages."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.found: asyncio.Future[list[AsyncMessage]] = asyncio.get_running_loop().create_future()


class _Line:
    """All that wait without a name for messages of one topic, with leases of one length."""

    def __init__(self, receiving: Receiving, topic: str, lease: timedelta) -> None:
        self._receiving, self.topic, self.lease = receiving, topic, lease
        self.waiters: dict[int, _Waiter] = {}
        self._pulling: asyncio.Task[None] | None = None
        self._count = 0

    async def wait(self, most: int, wait_s: float | None) -> list[AsyncMessage]:
        """Return at least one message, or none when the time is over."""
        waiter = _Waiter(most)
        self._count += 1
        number = self._count
        self.waiters[number] = waiter
        if self._pulling is None:
            self._pulling = asyncio.create_task(self._serve())
        try:
            async with asyncio.timeout(wait_s):
                return await waiter.found
        except (TimeoutError, asyncio.CancelledError) as over:
            ended = waiter.found.done() and not waiter.found.cancelled()
            if isinstance(over, TimeoutError):
                return waiter.found.result() if ended else []
            if ended and waiter.found.exception() is None:
                self._receiving.release(self.topic, waiter.found.result())
            raise
        finally:
            self.waiters.pop(number, None)
            self._leave()

    def stop(self) -> None:
        """Nothing more comes: waiting requests get nothing."""
        for waiter in self.waiters.values():
            if not waiter.found.done():
                waiter.found.set_result([])

    def _leave(self) -> None:
        if not self.waiters and self._pulling is not None:
            self._pulling.cancel()
            self._pulling = None
            self._receiving.forget(self)

    async def _serve(self) -> None:
        try:
            while True:
                wanted = sum(waiter.most for waiter in self._waiting())
                most = min(max(wanted, 1), limits.PULL_ROWS_MAX)
                self._deal(await self._receiving.pull(self.topic, most, _LONG_S, self.lease))
                # Those that have got something leave before the next pull says how many wait.
                await asyncio.sleep(0)
        except DueqError as error:
            for waiter in self._waiting():
                waiter.found.set_exception(error)
            self._pulling = None
            self._receiving.forget(self)

    def _waiting(self) -> list[_Waiter]:
        return [waiter for waiter in self.waiters.values() if not waiter.found.done()]

    def _deal(self, messages: list[AsyncMessage]) -> None:
        """Give the messages out, one to each in turn; what nobody wants any more goes back."""
        left = list(reversed(messages))
        shares: dict[int, list[AsyncMessage]] = {}
        waiting = [(number, waiter) for number, waiter in self.waiters.items() if not waiter.found.done()]
        while left and waiting:
            for number, _ in waiting[: len(left)]:
                shares.setdefault(number, []).append(left.pop())
            waiting = [
                (number, waiter) for number, waiter in waiting if len(shares.get(number, ())) < waiter.most
            ]
        for number, share in shares.items():
            self.waiters[number].found.set_result(share)
        self._receiving.release(self.topic, left)


class Receiving:
    """All that wait at this gateway.

    Attributes:
        stopped: nobody waits any more: the gateway is about to end.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._lines: dict[tuple[str, timedelta], _Line] = {}
        self._named: set[asyncio.Task[list[AsyncMessage]]] = set()
        self._releasing: set[asyncio.Task[None]] = set()
        self.stopped = False

    def __len__(self) -> int:
        return len(self._named) + sum(len(line.waiters) for line in self._lines.values())

    async def take(
        self,
        topic: str,
        most: int,
        wait_s: float | None,
        lease: timedelta,
        consumer: str | None = None,
        held: Sequence[Lease] = (),
        order: int = 0,
    ) -> list[AsyncMessage]:
        """Return messages that are ready, or none: in time none was, or the gateway is about to end.

        Args:
            topic: its name.
            most: messages at most.
            wait_s: how long to wait for one; None: until one comes.
            lease, consumer, held, order: as for `pull`.

        Raises:
            DueqError: as `pull`.
        """
        if self.stopped:
            return []
        if consumer is None and not held and wait_s != 0:
            key = topic, lease
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = _Line(self, topic, lease)
            return await line.wait(most, wait_s)
        seconds = _LONG_S if wait_s is None else wait_s
        task = asyncio.create_task(self.pull(topic, most, seconds, lease, consumer, held, order))
        self._named.add(task)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            if not task.cancel() and not task.cancelled() and task.exception() is None:
                self.release(topic, task.result())
            raise
        finally:
            self._named.discard(task)
        return [] if task.cancelled() else task.result()

    async def pull(
        self,
        topic: str,
        most: int,
        wait_s: float,
        lease: timedelta,
        consumer: str | None = None,
        held: Sequence[Lease] = (),
        order: int = 0,
    ) -> list[AsyncMessage]:
        """Pull; of long payloads no more at once than a gateway wants to hold for one caller."""
        call, seconds = pulls.pull(
            topic, most, wait_s, lease, consumer, held, limits.GATEWAY_PULL_BYTES_MAX, order
        )
        connection = self._client.connection
        found = await connection.run(call, seconds + _PATIENCE_S)
        pulled = AsyncPulled(connection, topic)
        return [AsyncMessage(pulled, delivery) for delivery in found]

    def release(self, topic: str, messages: Sequence[AsyncMessage]) -> None:
        """Give messages back, uncounted; nobody waits for that."""
        if not messages:
            return
        leases = [(message.id, message.token) for message in messages]
        task = asyncio.create_task(self._release(topic, leases))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    def stop(self) -> None:
        """Let all that wait go, with nothing."""
        self.stopped = True
        for line in list(self._lines.values()):
            line.stop()
        for task in self._named:
            task.cancel()

    async def released(self) -> None:
        """Wait until everything that was given back has arrived."""
        while self._releasing:
            await asyncio.wait(list(self._releasing))

    def forget(self, line: _Line) -> None:
        """Nobody stands in this line any more."""
        if self._lines.get((line.topic, line.lease)) is line:
            del self._lines[line.topic, line.lease]

    async def _release(self, topic: str, leases: Sequence[Lease]) -> None:
        try:
            await self._client.settle(topic, leases, "release")
        except DueqError:
            return  # their leases run out

"""The part of a client that takes messages without a consumer, and settles them by token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dueq import limits
from dueq.client import pulls, times
from dueq.client.aio.connection import AsyncConnection
from dueq.client.aio.message import AsyncMessage
from dueq.client.calls import Call
from dueq.client.core.ports.delivery import Delivery
from dueq.client.endings import Ending
from dueq.client.pulls import Lease
from dueq.client.times import Seconds
from dueq.errors import StaleLease
from dueq_codecs.records import Outcome, RecordKind


class AsyncPulled:
    """Settles messages that were pulled, by the tokens of their leases.

    Attributes:
        topic: its name.
    """

    def __init__(self, connection: AsyncConnection, topic: str) -> None:
        self._connection, self.topic = connection, topic

    def _mono_us(self) -> int:
        """The clock for durations, µs; for messages, which ask what is left of their leases."""
        return self._connection.live().mono_us()

    async def _settle(
        self,
        kind: RecordKind,
        deliveries: Sequence[Delivery],
        ending: Ending,
        wait: bool,
        timeout: float | None,
    ) -> list[Outcome]:
        leases = [(delivery.id, delivery.token) for delivery in deliveries]
        outcomes = await self._connection.run(pulls.ended(self.topic, leases, kind, ending), timeout)
        if any(outcome is not Outcome.DONE for outcome in outcomes):
            raise StaleLease(
                f"{kind.name}: the lease is over, or another has followed: {leases[0][0]}", outcomes
            )
        return outcomes

    async def _extend(
        self, deliveries: Sequence[Delivery], seconds: Seconds, wait: bool, timeout: float | None
    ) -> list[Outcome]:
        lease_ms = times.duration_ms(seconds, "the new lease", limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        return await self._settle(RecordKind.EXTEND, deliveries, Ending(lease_ms), wait, timeout)


class AsyncPullCalls:
    """A client's calls that take messages once, and settle leases of whoever took them."""

    connection: AsyncConnection

    async def pull(
        self,
        topic: str,
        max: int = 10,
        wait: Seconds = 0.0,
        lease: Seconds = 30.0,
        *,
        consumer: str | None = None,
        held: Iterable[Lease] = (),
        timeout: float | None = None,
    ) -> list[AsyncMessage]:
        """Take messages that are ready, once. Their leases are detached: they last though this client ends.

        Only `ack`, `nack`, `release` or the end of its length ends such a lease. Whoever has id and token may settle it
        (`settle`), at any broker. So what a message of a pull is settled with waits for its answer in any case.

        Args:
            topic: its name.
            max: messages at most, 1 to 1,000.
            wait: how long to wait for one, seconds or timedelta, at most an hour. 0: what is ready now.
            lease: how long a message is yours, seconds (0.1 s to 12 h) or timedelta.
            consumer: a name. Messages of its earlier pulls that are not in `held` come again first: what other clients
                have pulled under new tokens, and the older ones are over. A later pull of a name ends one that waits.
            held: (id, token) of what a consumer of this name still works on, at most 16,384.
            timeout: seconds that the call may take beyond `wait`.

        Returns:
            Messages; empty when none was ready in time.

        Raises:
            InvalidRequest: a value is outside its limits.
            TopicNotFound: there is no such topic.
            Superseded: another pull of this name has followed.
            Disconnected: no leader was reached in time.
        """
        call, wait_s = pulls.pull(topic, max, wait, lease, consumer, held)
        seconds = times.timeout_s(timeout, self.connection.timeout) + wait_s
        pulled = AsyncPulled(self.connection, topic)

        def messages(deliveries: list[Delivery]) -> list[AsyncMessage]:
            return [AsyncMessage(pulled, delivery) for delivery in deliveries]

        return await self.connection.run(Call(call.build, messages, call.undo), seconds)

    async def settle(
        self,
        topic: str,
        leases: Iterable[Lease],
        how: str,
        *,
        delay: Seconds | None = None,
        seconds: Seconds | None = None,
        reason: str = "",
        dead: bool = False,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """Settle leases by their tokens, whoever has taken the messages.

        Args:
            topic: its name.
            leases: (message id, token) of each.
            how: "ack", "nack", "release" or "extend".
            delay: of "nack" and "release": seconds or timedelta until the message is delivered again, at the earliest;
                None: as the topic's back-off says, and at once.
            seconds: of "extend": how long the lease lasts from now on; 0 ends it at once, counted.
            reason: of "nack": why, up to 1,024 bytes of UTF-8.
            dead: of "nack": never deliver it again.
            headers: of "nack": what the next delivery shows in place of its present ones; None: these stay.
            timeout: seconds.

        Returns:
            One outcome per lease: DONE, or STALE where the lease was over or another had followed.

        Raises:
            InvalidRequest: a value is outside its limits, or an id is of another topic.
            OutcomeUnknown: no answer in time; `retry()` repeats it safely.
            Disconnected: no broker was reached in time; nothing was done.
        """
        return await self.connection.run(
            pulls.settle(topic, leases, how, delay, seconds, reason, dead, headers), timeout
        )

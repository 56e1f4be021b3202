# Made of aio/pull_calls.py by scripts/generate-faces: write there.
"""The part of a client that takes messages without a consumer, and settles them by token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dueq.client import arguments, pulls
from dueq.client.arguments import Seconds
from dueq.client.core.ports.delivery import Delivery
from dueq.client.pulls import Lease
from dueq.client.sync.connection import Connection
from dueq.client.sync.message import Message
from dueq.errors import StaleLease
from dueq_codecs.records import Outcome, RecordKind


class Pulled:
    """Whose messages are pulled: settles them by token.

    Attributes:
        topic: its name.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection, self.topic = connection, topic

    def _settle(
        self,
        kind: RecordKind,
        deliveries: Sequence[Delivery],
        amount_ms: int,
        wait: bool,
        timeout: float | None,
    ) -> list[Outcome]:
        return self._do(kind.name.lower(), deliveries, 0.0, None, timeout)

    def _nack(
        self, deliveries: Sequence[Delivery], delay: Seconds, wait: bool, timeout: float | None
    ) -> list[Outcome]:
        return self._do("nack", deliveries, delay, None, timeout)

    def _extend(
        self, deliveries: Sequence[Delivery], seconds: Seconds, wait: bool, timeout: float | None
    ) -> list[Outcome]:
        return self._do("extend", deliveries, 0.0, seconds, timeout)

    def _do(
        self,
        how: str,
        deliveries: Sequence[Delivery],
        delay: Seconds,
        seconds: Seconds | None,
        timeout: float | None,
    ) -> list[Outcome]:
        leases = [(delivery.id, delivery.token) for delivery in deliveries]
        outcomes = self._connection.run(pulls.settle(self.topic, leases, how, delay, seconds), timeout)
        if any(outcome is not Outcome.DONE for outcome in outcomes):
            raise StaleLease(f"{how}: the lease is over, or another has followed: {leases[0][0]}", outcomes)
        return outcomes


class PullCalls:
    """A client's calls that take messages once, and settle leases of whoever took them."""

    connection: Connection

    def pull(
        self,
        topic: str,
        max: int = 10,
        wait: Seconds = 0.0,
        lease: Seconds = 30.0,
        *,
        consumer: str | None = None,
        held: Iterable[Lease] = (),
        timeout: float | None = None,
    ) -> list[Message]:
        """Take messages that are ready, once. Their leases are detached: they last though this client ends.

        Only `ack`, `nack`, `release` or the end of its length ends such a lease. Whoever has id and token may settle it
        (`settle`), at any broker.

        Args:
            topic: its name.
            max: messages at most, 1 to 1,000.
            wait: how long to wait for one, seconds or timedelta, at most an hour. 0: what is ready now.
            lease: how long a message is yours, seconds (0.1 s to 12 h) or timedelta.
            consumer: a name. What earlier pulls of this name have brought, and is not in `held`, comes again first,
                under the same tokens, while half of its lease is left. A later pull of a name ends one that waits.
            held: (id, token) of what a consumer of this name has.
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
        seconds = arguments.timeout_s(timeout, self.connection.timeout) + wait_s
        pulled = Pulled(self.connection, topic)
        return [Message(pulled, delivery) for delivery in self.connection.run(call, seconds)]

    def settle(
        self,
        topic: str,
        leases: Iterable[Lease],
        how: str,
        *,
        delay: Seconds = 0.0,
        seconds: Seconds | None = None,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """Settle leases by their tokens, whoever has taken the messages.

        Args:
            topic: its name.
            leases: (message id, token) of each.
            how: "ack", "nack", "release" or "extend".
            delay: of "nack": seconds or timedelta until the message is delivered again, at the earliest.
            seconds: of "extend": how long the lease lasts from now on; 0 ends it at once, counted.
            timeout: seconds.

        Returns:
            One outcome per lease: DONE, or STALE where the lease was over or another had followed.

        Raises:
            InvalidRequest: a value is outside its limits, or an id is of another topic.
            OutcomeUnknown: no answer in time; `retry()` repeats it safely.
            Disconnected: no broker was reached in time; nothing was done.
        """
        return self.connection.run(pulls.settle(topic, leases, how, delay, seconds), timeout)

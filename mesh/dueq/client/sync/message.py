# Made of aio/message.py by scripts/generate-faces: write there.
"""A message in the hands of its consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dueq.client import endings
from dueq.client.core.ports.delivery import Delivery
from dueq.client.endings import Ending
from dueq.client.message import BaseMessage
from dueq.client.times import Seconds
from dueq_codecs.records import RecordKind


class _Holder(Protocol):
    """The consumer behind a message."""

    topic: str

    def _settle(
        self,
        kind: RecordKind,
        deliveries: Sequence[Delivery],
        ending: Ending,
        wait: bool,
        timeout: float | None,
    ) -> object: ...
    def _extend(
        self, deliveries: Sequence[Delivery], seconds: Seconds, wait: bool, timeout: float | None
    ) -> object: ...


class Message(BaseMessage):
    """A leased message of an `Consumer`.

    Settle it with `ack`, `nack` or `release` before its lease is over. The first of them counts: any other
    after it, or `extend`, finds the lease over (`StaleLease`, with `wait`). Without
    `wait` they return at once, are sent within 100 ms (others than acks: 2 ms), and repeated until
    confirmed. A leader may log acks up to 100 ms later. A refusal (the lease was over) goes to the
    consumer's `on_lease_lost`.
    """

    __slots__ = ()
    _consumer: _Holder

    def ack(self, *, reason: str = "", wait: bool = False, timeout: float | None = None) -> None:
        """The message is done.

        Args:
            reason: why it is done without being handled, up to 1,024 bytes of UTF-8. It stands in the log, as long as
                that is kept; brokers count "filtered" (`dueq_messages_total` of the operation `filter`).
            wait: return only when committed on the in-sync replicas.
            timeout: seconds to wait; None for the client's default.

        Raises:
            StaleLease: with `wait`: the lease is over.
            OutcomeUnknown: with `wait`: no answer in time; it goes on being repeated.
            ClientClosed: the consumer is closed.
        """
        self._consumer._settle(RecordKind.ACK, (self._delivery,), endings.ack(reason), wait, timeout)

    def nack(
        self,
        *,
        delay: Seconds | None = None,
        reason: str = "",
        dead: bool = False,
        headers: Mapping[str, str] | None = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Deliver it again; after its last attempt it is dead instead. Raises as `ack`, and InvalidRequest.

        Args:
            delay: seconds until then, at least; None: as the topic's back-off says.
            reason: why, up to 1,024 bytes of UTF-8; kept with the message.
            dead: never deliver it again.
            headers: what the next delivery shows in place of its present ones; None: these stay. A partition keeps
                2 MiB of them, beyond that it is `Busy`.
            wait: return only when committed on the in-sync replicas.
            timeout: seconds to wait; None for the client's default.
        """
        ending = endings.nack(delay, reason, dead, headers)
        self._consumer._settle(RecordKind.NACK, (self._delivery,), ending, wait, timeout)

    def release(self, *, delay: Seconds = 0.0, wait: bool = False, timeout: float | None = None) -> None:
        """Give it back unhandled, for `delay` seconds (a day at most): this attempt does not count.

        With a delay it counts once the message has waited for seven days since its first instant.
        """
        ending = endings.release(delay)
        self._consumer._settle(RecordKind.RELEASE, (self._delivery,), ending, wait, timeout)

    def extend(self, seconds: Seconds, *, wait: bool = False, timeout: float | None = None) -> None:
        """Let the lease end `seconds` from now. Raises as `ack`, and InvalidRequest."""
        self._consumer._extend((self._delivery,), seconds, wait, timeout)

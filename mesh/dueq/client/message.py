"""A message in the hands of its consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dueq.client.arguments import Seconds
from dueq.client.core.delivery import Delivery
from dueq.client.runtime import mono_us
from dueq_codecs.records import RecordKind


class _Holder(Protocol):
    """The consumer behind a `Message`."""

    topic: str

    def _settle(
        self,
        kind: RecordKind,
        deliveries: Sequence[Delivery],
        amount_ms: int,
        wait: bool,
        timeout: float | None,
    ) -> object: ...
    def _nack(
        self, deliveries: Sequence[Delivery], delay: Seconds, wait: bool, timeout: float | None
    ) -> object: ...
    def _extend(
        self, deliveries: Sequence[Delivery], seconds: Seconds, wait: bool, timeout: float | None
    ) -> object: ...


class _AsyncHolder(Protocol):
    """The consumer behind an `AsyncMessage`."""

    topic: str

    async def _settle(
        self,
        kind: RecordKind,
        deliveries: Sequence[Delivery],
        amount_ms: int,
        wait: bool,
        timeout: float | None,
    ) -> object: ...
    async def _nack(
        self, deliveries: Sequence[Delivery], delay: Seconds, wait: bool, timeout: float | None
    ) -> object: ...
    async def _extend(
        self, deliveries: Sequence[Delivery], seconds: Seconds, wait: bool, timeout: float | None
    ) -> object: ...


class BaseMessage:
    """What both faces' messages tell. Two are equal if they are the same lease of the same message."""

    __slots__ = ("_consumer", "_delivery")
    _consumer: Any

    def __init__(self, consumer: Any, delivery: Delivery) -> None:
        self._consumer = consumer
        self._delivery = delivery

    @property
    def id(self) -> str:
        """The message id: 26 characters."""
        return self._delivery.id

    @property
    def payload(self) -> bytes:
        """The bytes that were scheduled; their checksum has been checked."""
        return self._delivery.payload

    @property
    def key(self) -> str:
        """The name that its producer gave it; "" when there is none."""
        return self._delivery.key

    @property
    def topic(self) -> str:
        """The topic's name."""
        topic: str = self._consumer.topic
        return topic

    @property
    def due(self) -> int:
        """When it was to be delivered, Unix ms."""
        return self._delivery.due

    @property
    def released_at(self) -> int:
        """When it left its leader by the mesh's clock, Unix ms; never before `due`."""
        return self._delivery.released_at_us // 1000

    @property
    def lateness(self) -> float:
        """Seconds between `due` and its release."""
        return self._delivery.released_at_us / 1e6 - self._delivery.due / 1e3

    @property
    def attempt(self) -> int:
        """1 for the first delivery."""
        return self._delivery.attempt

    @property
    def token(self) -> int:
        """The lease: of two holders of one message the one with the higher token is the right one (fencing)."""
        return self._delivery.token

    @property
    def lease(self) -> float:
        """Seconds left of the lease; 0 when it is over."""
        return max(self._delivery.deadline_us - mono_us(), 0) / 1e6

    @property
    def lost(self) -> bool:
        """The lease is over or was refused: somebody else may have the message."""
        return self._delivery.lost

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BaseMessage) and other._delivery is self._delivery

    def __hash__(self) -> int:
        return hash(self._delivery)

    def __repr__(self) -> str:
        size = len(self.payload)
        return f"<{type(self).__name__} {self.id} of {self.topic!r}, {size} bytes, attempt {self.attempt}>"


class Message(BaseMessage):
    """A leased message of a `Consumer`.

    Settle it with `ack`, `nack` or `release` before its lease is over. The first of them counts; without
    `wait` they return at once, are sent within 100 ms (others than acks: 2 ms), which the leader may take as long
    to log, and repeated until confirmed. A refusal (the lease was over) comes to the consumer's `on_lease_lost`.
    """

    __slots__ = ()
    _consumer: _Holder

    def ack(self, *, wait: bool = False, timeout: float | None = None) -> None:
        """The message is done.

        Args:
            wait: return only when committed on the in-sync replicas.
            timeout: seconds to wait; None for the client's default.

        Raises:
            StaleLease: with `wait`: the lease is over.
            OutcomeUnknown: with `wait`: no answer in time; it goes on being repeated.
            ClientClosed: the consumer is closed.
        """
        self._consumer._settle(RecordKind.ACK, (self._delivery,), 0, wait, timeout)

    def nack(self, *, delay: Seconds = 0.0, wait: bool = False, timeout: float | None = None) -> None:
        """Deliver it again, after `delay` seconds at the earliest. Raises as `ack`, and InvalidRequest."""
        self._consumer._nack((self._delivery,), delay, wait, timeout)

    def release(self, *, wait: bool = False, timeout: float | None = None) -> None:
        """Give it back unhandled: at once to another consumer, and this attempt does not count."""
        self._consumer._settle(RecordKind.RELEASE, (self._delivery,), 0, wait, timeout)

    def extend(self, seconds: Seconds, *, wait: bool = False, timeout: float | None = None) -> None:
        """Let the lease end `seconds` from now. Raises as `ack`, and InvalidRequest."""
        self._consumer._extend((self._delivery,), seconds, wait, timeout)


class AsyncMessage(BaseMessage):
    """A leased message of an `AsyncConsumer`; the methods are those of `Message`, awaited."""

    __slots__ = ()
    _consumer: _AsyncHolder

    async def ack(self, *, wait: bool = False, timeout: float | None = None) -> None:
        """The message is done (see `Message.ack`)."""
        await self._consumer._settle(RecordKind.ACK, (self._delivery,), 0, wait, timeout)

    async def nack(self, *, delay: Seconds = 0.0, wait: bool = False, timeout: float | None = None) -> None:
        """Deliver it again (see `Message.nack`)."""
        await self._consumer._nack((self._delivery,), delay, wait, timeout)

    async def release(self, *, wait: bool = False, timeout: float | None = None) -> None:
        """Give it back unhandled (see `Message.release`)."""
        await self._consumer._settle(RecordKind.RELEASE, (self._delivery,), 0, wait, timeout)

    async def extend(self, seconds: Seconds, *, wait: bool = False, timeout: float | None = None) -> None:
        """Let the lease end `seconds` from now (see `Message.extend`)."""
        await self._consumer._extend((self._delivery,), seconds, wait, timeout)

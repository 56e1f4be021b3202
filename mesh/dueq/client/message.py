"""The message as both faces show it."""

from __future__ import annotations

from typing import Any

from dueq.client.core.ports.delivery import Delivery


class BaseMessage:
    """A message as both faces show it. Two are equal if they are the same lease of the same message."""

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
    def headers(self) -> dict[str, str]:
        """What its producer said of it, such as its `content_type`; empty when there is nothing."""
        return dict(self._delivery.headers)

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
    def rank(self) -> int:
        """Of a priority topic: the message with the smallest goes first. 0 elsewhere."""
        return self._delivery.rank

    @property
    def group(self) -> str:
        """Of a fair topic: the group whose turn the message took. "" elsewhere."""
        return self._delivery.group

    @property
    def version(self) -> int:
        """Grows whenever the message is moved or changed."""
        return self._delivery.version

    @property
    def expires(self) -> int:
        """From this instant on (Unix ms) it is not delivered any more; 0: never."""
        return self._delivery.expires

    @property
    def token(self) -> int:
        """The lease: of two holders of one message the one with the higher token is the right one (fencing)."""
        return self._delivery.token

    @property
    def lease(self) -> float:
        """Seconds left of the lease; 0 when it is over."""
        now_us: int = self._consumer._mono_us()
        return max(self._delivery.deadline_us - now_us, 0) / 1e6

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

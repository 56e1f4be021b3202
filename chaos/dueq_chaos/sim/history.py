"""What clients asked for and were told, and the verdicts over it."""

from __future__ import annotations

from dataclasses import dataclass, field

MessageKey = tuple[int, int, int]
"""(partition uid, log sequence, row)."""


@dataclass
class Delivery:
    """One message handed to one consumer."""

    at_us: int
    """True time, Unix µs."""
    consumer: str
    token: int
    attempt: int
    payload: bytes
    lease_until_us: int


@dataclass
class Message:
    """One message's life as its clients saw it."""

    payload: bytes
    due_ms: int
    first: int
    """The instant in its id."""
    moves: list[int] = field(default_factory=list)
    """Dues of confirmed moves."""
    maybe_dues: list[int] = field(default_factory=list)
    """Dues of moves that may have happened."""
    cancelled_at_us: int | None = None
    """When a cancel was confirmed."""
    cancel_asked: bool = False
    acked_at_us: int | None = None
    """When an ack was confirmed."""
    deliveries: list[Delivery] = field(default_factory=list)


class History:
    """Every message whose insert was acknowledged, and everything that was delivered.

    Attributes:
        messages: by key.
        unacknowledged: payloads of inserts whose outcome was never learnt.
        strangers: deliveries of messages that nobody has (yet) been told of.
    """

    def __init__(self) -> None:
        self.messages: dict[MessageKey, Message] = {}
        self.unacknowledged: dict[bytes, None] = {}
        self.strangers: dict[MessageKey, list[Delivery]] = {}
        self._early_acks: dict[MessageKey, int] = {}

    def inserted(self, key: MessageKey, payload: bytes, due_ms: int, first: int) -> None:
        """An insert was acknowledged."""
        message = self.messages[key] = Message(payload, due_ms, first)
        message.deliveries.extend(self.strangers.pop(key, []))
        message.acked_at_us = self._early_acks.pop(key, None)

    def acked(self, key: MessageKey, at_us: int) -> None:
        """An ack was confirmed (perhaps before the insert's own answer came)."""
        message = self.messages.get(key)
        if message is None:
            self._early_acks[key] = at_us
        else:
            message.acked_at_us = at_us

    def delivered(self, key: MessageKey, delivery: Delivery) -> None:
        """A consumer was given a message."""
        message = self.messages.get(key)
        if message is None:
            self.strangers.setdefault(key, []).append(delivery)
        else:
            message.deliveries.append(delivery)

    def verdicts(self, *, clock_error_us: int = 0) -> list[str]:
        """Return everything that must not have happened; empty when all is well.

        Args:
            clock_error_us: how early a delivery may seem because of the bound on clocks.
        """
        wrong: list[str] = []
        for key, message in self.messages.items():
            wrong.extend(f"{key}: {text}" for text in _verdicts(message, clock_error_us))
        for key, deliveries in self.strangers.items():
            if any(delivery.payload not in self.unacknowledged for delivery in deliveries):
                wrong.append(f"{key}: unexpected")
        return wrong


def _verdicts(message: Message, clock_error_us: int) -> list[str]:
    wrong: list[str] = []
    possible = [message.due_ms, *message.moves, *message.maybe_dues]
    for delivery in message.deliveries:
        if delivery.payload != message.payload:
            wrong.append("delivered with another payload")
        if delivery.at_us < min(possible) * 1000 - clock_error_us:
            wrong.append(f"delivered early: {delivery.at_us} before {min(possible)}000")
        if message.cancelled_at_us is not None and delivery.at_us > message.cancelled_at_us:
            wrong.append("delivered after a confirmed cancel")
        if message.acked_at_us is not None and delivery.at_us > message.acked_at_us:
            wrong.append("acknowledged and delivered again")
    for earlier, later in zip(message.deliveries, message.deliveries[1:], strict=False):
        if later.consumer != earlier.consumer and later.at_us < earlier.lease_until_us:
            wrong.append(f"delivered twice while a lease was valid: {earlier} {later}")
    if message.cancelled_at_us is None and message.acked_at_us is None and not message.cancel_asked:
        wrong.append("lost" if not message.deliveries else "never finished")
    return wrong

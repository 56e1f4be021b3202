"""Everything that the session machine can order: the way out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.parts import PartsCall
from dueq.errors import DueqError
from dueq_codecs.messages import ClientMessage


@dataclass(slots=True)
class OpenLink:
    """Connect a fresh socket to this endpoint; answer LinkReady or LinkLost with the same number."""

    link: int
    endpoint: str


@dataclass(slots=True)
class CloseLink:
    """Drop the socket and all that it still holds."""

    link: int


@dataclass(slots=True)
class Send:
    """Send on a link; may be lost."""

    link: int
    message: ClientMessage
    bodies: Sequence[bytes | memoryview] = ()


@dataclass(slots=True)
class Completed:
    """A call is done. The type of `value` depends on the call (see events)."""

    call: int
    value: Any


@dataclass(slots=True)
class Failed:
    """A call has failed. `repeat`, where there is one, can be sent again by a `Repeat` event."""

    call: int
    error: DueqError
    repeat: PartsCall | None = None


@dataclass(slots=True)
class Deliver:
    """Messages for a consumer, in the order to hand them out."""

    consumer_id: bytes
    deliveries: list[Delivery]


@dataclass(slots=True)
class Reclaim:
    """The leases of these will soon be over: those not handed out yet must be settled with RELEASE now."""

    consumer_id: bytes
    deliveries: list[Delivery]


@dataclass(slots=True)
class LeaseLost:
    """The leases of these are over: never hand them out; report those that the user holds.

    Attributes:
        returning: the leader may still count on them: those not handed out must be settled with RELEASE now.
    """

    consumer_id: bytes
    deliveries: list[Delivery]
    returning: bool = False


@dataclass(slots=True)
class ConsumerFailed:
    """Nothing more will come for this consumer (its topic was deleted, it may not consume, …)."""

    consumer_id: bytes
    error: DueqError


@dataclass(slots=True)
class Log:
    """One line of log: a state change. `level` is "debug", "info", "warning" or "error"."""

    level: str
    event: str
    fields: dict[str, object]


Effect = (
    OpenLink | CloseLink | Send | Completed | Failed | Deliver | Reclaim | LeaseLost | ConsumerFailed | Log
)

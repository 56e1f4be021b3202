"""Everything that can happen to a broker's core: the way in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dueq.core.ports.membership import CoordinatorEvent
from dueq.core.ports.persistence import StoreReadDone
from dueq_codecs.messages import BrokerMessage, ClientMessage, PeerMessage


class Route(NamedTuple):
    """How a client is reached: by a connection of this broker, or by one of the peer that relays for it."""

    identity: bytes
    via: str = ""
    """Broker id of the relaying peer, or empty."""


@dataclass(slots=True)
class ClientFrameReceived:
    route: Route
    message: ClientMessage
    bodies: list[bytes | memoryview]
    principal: str = ""
    """The principal of the session by which it came, as the broker with the connection knows it; empty: not
    authenticated.
    """


@dataclass(slots=True)
class RouteLost:
    """A frame for this client could not be sent: its connection is gone, or takes nothing any more."""

    route: Route
    unsent: BrokerMessage


@dataclass(slots=True)
class PeerFrameReceived:
    """A frame from a peer whose Hello on this connection was accepted by the shell."""

    message: PeerMessage
    bodies: list[bytes | memoryview]


@dataclass(slots=True)
class Persisted:
    """Every `Persist` up to and including this token is synced."""

    token: int
    took_us: int
    """How long the last group commit took: part of the commit latency."""
    wiping: frozenset[int] = frozenset()
    """Partitions whose old rows the store is still deleting: they had better get no new ones yet."""


@dataclass(slots=True)
class StoreFailed:
    """A write or sync failed: this process never writes the store again."""

    reason: str


@dataclass(slots=True)
class StorePressure:
    """The store's state, measured before each group commit."""

    inserts_refused: str
    """"" or why inserts are refused: "disk_full", "memory_full", "busy"."""
    hand_over: bool
    """Free space is below the last mark."""


Event = (
    ClientFrameReceived
    | RouteLost
    | PeerFrameReceived
    | Persisted
    | StoreFailed
    | StorePressure
    | StoreReadDone
    | CoordinatorEvent
)

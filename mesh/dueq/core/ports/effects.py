"""Everything that a broker's core can order: the way out."""

from __future__ import annotations

from dataclasses import dataclass, field

from dueq.core.ports.membership import CoordinatorOrder
from dueq.core.ports.persistence import StoreRead, StoreWrite
from dueq_codecs.messages import BrokerMessage, PeerMessage


@dataclass(slots=True)
class SendClient:
    """Send to a client of this broker (the core itself wraps what goes by another broker in a Relay)."""

    identity: bytes
    message: BrokerMessage
    bodies: list[bytes | memoryview] = field(default_factory=list)


@dataclass(slots=True)
class SendPeer:
    """Send to a peer; may be lost. The bodies of a PeerFrame's records travel in its LogEntries."""

    broker_id: str
    message: PeerMessage
    bodies: list[bytes | memoryview] = field(default_factory=list)


@dataclass(slots=True)
class ConnectPeer:
    """Have one fresh connection to this peer life (replacing any older one)."""

    broker_id: str
    incarnation: int
    endpoint: str


@dataclass(slots=True)
class Persist:
    """Write, sync, then answer Persisted(token). Tokens grow by one."""

    token: int
    writes: list[StoreWrite]


@dataclass(slots=True)
class Read:
    """Read in the reading thread; the answer is an event with the request's token."""

    request: StoreRead


@dataclass(slots=True)
class Coordinate:
    order: CoordinatorOrder


@dataclass(slots=True)
class Log:
    """One line of log: a state change. `level` is "debug", "info", "warning" or "error"."""

    level: str
    event: str
    fields: dict[str, object]


@dataclass(slots=True)
class Exit:
    """The process must end: its store is not to be written any more."""

    reason: str


Effect = SendClient | SendPeer | ConnectPeer | Persist | Read | Coordinate | Log | Exit

"""Knows which connection belongs to which peer.

ROUTER's own identities do not say it. A connection is a broker's once a Hello on it was accepted.
It is then bound to (broker id, incarnation), and only frames of that sender are accepted on it. If one life has two
connections, the later attach counts. Several lives of one broker may be bound at once. The core knows the present one
(from the registrations), and drops the frames of others.
"""

from __future__ import annotations

from dataclasses import dataclass

from dueq_codecs.messages import PROTOCOL_VERSION, Code, Hello

_BINDINGS_MAX = 1024
"""Anybody can say Hello: the oldest bindings go first. A peer that is refused says Hello again."""
_NAME_MAX = 64
"""Longest id of a broker (`dueq.config`)."""

Life = tuple[str, int]
"""Broker id and incarnation."""


@dataclass
class Identity:
    """This process as its peers know it. The cluster is known once the coordinator has answered."""

    broker_id: str
    incarnation: int
    cluster_id: str = ""


class Introductions:
    """The Hellos that were accepted."""

    def __init__(self, me: Identity) -> None:
        self._me = me
        self._life_of: dict[bytes, Life] = {}
        # (attach, connection) of each life; one entry for each of `_life_of`, oldest first.
        self._latest: dict[Life, tuple[int, bytes]] = {}

    def life_of(self, identity: bytes) -> Life | None:
        """Return the broker at the other end of a connection; None: not a broker."""
        return self._life_of.get(identity)

    def accept(self, identity: bytes, hello: Hello) -> tuple[Code, str] | None:
        """Bind a connection to the sender of a Hello; returns the reason if it is refused."""
        refusal = self._refusal(hello)
        if refusal is not None:
            return refusal
        life = hello.name, hello.incarnation
        known = self._latest.pop(life, None)
        if known is not None:
            attach, old = known
            if hello.attach < attach or (hello.attach == attach and old != identity):
                self._latest[life] = known
                return Code.BAD_FRAME, f"attach {hello.attach} of {hello.name} comes after attach {attach}"
            del self._life_of[old]
        previous = self._life_of.pop(identity, None)
        if previous is not None:
            del self._latest[previous]
        self._life_of[identity] = life
        self._latest[life] = hello.attach, identity
        if len(self._latest) > _BINDINGS_MAX:
            _, oldest = self._latest.pop(next(iter(self._latest)))
            del self._life_of[oldest]
        return None

    def _refusal(self, hello: Hello) -> tuple[Code, str] | None:
        if not hello.protocol_min <= PROTOCOL_VERSION <= hello.protocol_max:
            spoken = f"{hello.protocol_min} to {hello.protocol_max}"
            return Code.WRONG_VERSION, f"protocol versions {spoken} do not include {PROTOCOL_VERSION}"
        if not self._me.cluster_id or hello.cluster_id != self._me.cluster_id:
            return (
                Code.WRONG_CLUSTER,
                f"this is cluster {self._me.cluster_id!r}, not {hello.cluster_id!r:.80}",
            )
        if not 1 <= len(hello.name) <= _NAME_MAX or hello.name == self._me.broker_id:
            return Code.BAD_FRAME, f"a peer of {self._me.broker_id} cannot be called {hello.name!r:.80}"
        return None

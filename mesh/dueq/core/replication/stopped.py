"""A replica that has met a record which it cannot apply, of a newer build: it is *stopped*.

Its log is as good as any: it appends, acks and counts in the ISR. But it has no state, so it cannot serve. It stands
for no election, declines what its leader would hand over, and never keeps a healthy member from leading. The one
exception is the only member of an ISR: it leads without serving, until another replica has caught up and joined.
"""

from __future__ import annotations

from typing import Protocol

from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq_codecs.messages import Leadership


class StoppedReplica(Protocol):
    """The replica, as far as being stopped concerns it (see `Replica`)."""

    ctx: Context
    uid: int
    leader: str

    @property
    def epoch(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...

    def hand_over(self, now: Now, why: str) -> None:
        """Give up where another member of the ISR could take over."""
        ...


class Stopped:
    """A stopped replica's substitute for leading."""

    def __init__(self, replica: StoppedReplica) -> None:
        self._replica = replica

    def decline(self) -> None:
        """Tell the leader not to hand the partition over to this broker: as if it had given up this epoch already."""
        replica = self._replica
        if not replica.is_leader and (peer := replica.ctx.peers.get(replica.leader)) is not None:
            peer.tell_leadership(Leadership(replica.uid, replica.epoch, leads=False, serving=False))

    def tick(self, now: Now) -> None:
        """Hand over what it leads, as soon as there is an heir."""
        replica = self._replica
        if replica.is_leader:
            replica.hand_over(now, "it is stopped, and another member of the ISR is not")

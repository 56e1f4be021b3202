"""The leader of each partition, as far as this broker knows: for metadata, and for relaying requests.

Leaders tell every peer themselves (PeerFrame.leaderships), so that this needs no coordinator; the node of a
partition serves where no leader has spoken yet. A wrong entry costs a detour, never safety.
"""

from __future__ import annotations

from typing import NamedTuple

from dueq.core.ports.membership import PartitionNode
from dueq_codecs.messages import Leadership


class LeaderSeen(NamedTuple):
    """A leadership as last heard of. Later ones compare greater: (epoch, stage)."""

    epoch: int
    stage: int
    """0: elected, 1: serving, 2: given up."""
    broker_id: str


_NOBODY = LeaderSeen(0, 0, "")


class Routing:
    """The map of leaders."""

    def __init__(self) -> None:
        self._leaders: dict[int, LeaderSeen] = {}

    def heard(self, broker_id: str, leadership: Leadership) -> None:
        """A leader has spoken."""
        stage = 2 if not leadership.leads else 1 if leadership.serving else 0
        self._note(leadership.uid, LeaderSeen(leadership.epoch, stage, broker_id))

    def node_seen(self, uid: int, node: PartitionNode) -> None:
        """A partition's node was read."""
        if node.leader:
            self._note(uid, LeaderSeen(node.epoch, 0, node.leader))
        else:
            self._note(uid, LeaderSeen(node.epoch, 2, ""))

    def _note(self, uid: int, seen: LeaderSeen) -> None:
        known = self._leaders.get(uid)
        if known is None or seen[:2] > known[:2]:
            self._leaders[uid] = seen

    def forget(self, uid: int) -> None:
        """The partition is gone."""
        self._leaders.pop(uid, None)

    def leader_of(self, uid: int) -> LeaderSeen:
        """Return the leader; its broker_id is "" when none is known."""
        seen = self._leaders.get(uid, _NOBODY)
        return seen if seen.stage < 2 else LeaderSeen(seen.epoch, 2, "")

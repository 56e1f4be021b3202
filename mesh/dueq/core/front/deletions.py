"""Replicas of deleted topics on this disk, and replicas without a topic that may not be deleted.

Only a tombstone permits deleting a replica. It stays until every broker that had a replica has confirmed that it
holds nothing any more. So a broker that was away for a month still finds it. A replica with neither a topic nor a
tombstone is an *orphan*. Its disk was thought to be lost and came back, or the coordinator was restored from an older
backup. It is kept aside: not opened, not served, not deleted, but shown, until a person decides. So is one whose number
is now that of another topic's partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dueq.core.ports.membership import ConfirmDeleted, Topic
from dueq.core.ports.persistence import RecoveredPartition
from dueq.core.turn.context import Context
from dueq.instant import Now


class Deletions:
    """Confirms what is deleted, and knows the orphans.

    Attributes:
        orphans: uid -> name of the topic, as the disk has it.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.orphans: dict[int, str] = {}

    def confirm(self, tombstones: Collection[int]) -> None:
        """Once this turn's writes are synced nothing of these is on this disk; said whenever the topics were read."""
        if not tombstones:
            return
        order = ConfirmDeleted(tuple(sorted(tombstones)))

        def synced(now: Now) -> None:
            self._ctx.coordinate(order)

        self._ctx.when_persisted(synced)

    def seen(self, unopened: Mapping[int, RecoveredPartition], topics: Mapping[str, Topic]) -> None:
        """Replicas on the disk that no topic has opened."""
        if not unopened and not self.orphans:
            return
        assigned = {part.uid: name for name, topic in topics.items() for part in topic.partitions}
        orphans = {
            uid: replica.topic
            for uid, replica in unopened.items()
            if uid not in assigned or replica.topic not in ("", assigned[uid])
        }
        for uid in orphans.keys() - self.orphans.keys():
            self._ctx.log("error", "replica.orphaned", uid=uid, topic=orphans[uid])
        self.orphans = orphans

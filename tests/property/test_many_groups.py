"""Very many groups with a few messages each through a whole partition: turns, bounded memory, nothing left behind.

`DUEQ_MANY_GROUPS=100000` takes some minutes.
"""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
from tests.property.test_fair import FairMesh
from tests.property.test_priority import UID

from dueq.core.delivery.fair_queue import FairQueue
from dueq.core.ports.entry import keys_of
from dueq.limits import FAIR_WAKES_MAX
from dueq_codecs.records import Record, RecordKind

GROUPS = int(os.environ.get("DUEQ_MANY_GROUPS", "1500"))
EACH = 10
AT_ONCE = 1_000


class ManyGroups(FairMesh):
    """A replica whose memory holds a small part of its messages."""

    hot_rows = 1_024

    def load(self) -> None:
        """All of them, due at once; those of a group lie far apart in the log."""
        for _ in range(EACH):
            for start in range(0, GROUPS, AT_ONCE):
                numbers = range(start, min(start + AT_ONCE, GROUPS))
                record = Record(RecordKind.INSERT, UID, 0, 0, 0)
                record.due = np.full(len(numbers), self.stamp, np.uint64)
                record.size = record.crc = np.zeros(len(numbers), np.uint32)
                record.groups = tuple(f"g{number % 100}.x{number}" for number in numbers)
                record.group = np.arange(len(numbers), dtype=np.uint16)
                self.apply(record)
            self.catch_up()

    def catch_up(self) -> None:
        """Save, let go, and read what is wanted."""
        self.checkpoint()
        while self.scan():
            pass

    def give(self) -> list[int]:
        """Lease and ack what comes next; returns the number of each one's group."""
        found = self.queue.pop(self.stamp, AT_ONCE, {}.keys())
        if not len(found):
            return []
        keys, firsts = keys_of(found).tolist(), found["first"].tolist()
        lease = self.named(RecordKind.LEASE, keys, firsts)
        lease.consumer, lease.consumers = np.zeros(len(keys), np.uint16), (b"a" * 16,)
        lease.lease_ms = np.array([30_000], np.uint64)
        tokens = self.apply(lease).leased["token"].copy()
        self.apply(self.named(RecordKind.ACK, keys, firsts, token=tokens))
        return found["group"].tolist()


def test_all_of_very_many_groups_take_turns_in_bounded_memory() -> None:
    mesh = ManyGroups(1)
    mesh.load()
    timeline, queue = mesh.timeline, mesh.queue
    assert isinstance(queue, FairQueue)
    assert timeline.live_count == GROUPS * EACH
    got: Counter[int] = Counter()
    most = idle = 0
    while timeline.live_count:
        given = mesh.give()
        got.update(given)
        idle = 0 if given else idle + 1
        assert idle <= GROUPS // FAIR_WAKES_MAX + 2, "something waits, and nothing comes out"
        mesh.catch_up()
        most = max(most, timeline.hot_count)
        if FAIR_WAKES_MAX >= GROUPS:
            assert max(got.values()) - min(got[number] for number in range(1, GROUPS + 1)) <= 2, "in turns"
    assert set(got.values()) == {EACH}
    assert len(got) == GROUPS
    assert most <= mesh.hot_rows, "however many groups there are"
    queue.renew(
        timeline.deliverable_hot()
    )  # as a leader does when most places must be those of messages that are gone
    assert len(queue) == 0
    assert not mesh.give()
    mesh.stamp += 1
    mesh.set_group()  # a record forgets groups that have nothing
    assert len(timeline.groups.by_name) <= 1
    assert not queue._leaves
    assert not queue._alarms

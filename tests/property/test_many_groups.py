"""Very many groups with a few messages each through a whole partition: turns, bounded memory, nothing left behind.

`DUEQ_MANY_GROUPS=100000` takes some minutes.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.property.test_fair import LOOKS, FairMesh
from tests.property.test_priority import UID

from dueq.core.delivery.fair_queue import FairQueue
from dueq.core.delivery.group_rates import GroupRates
from dueq.core.delivery.leases import NEVER_US, LeaseTable, Phase
from dueq.core.ports.entry import Entries, keys_of
from dueq.core.state.timeline import Timeline
from dueq.instant import Now
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
        self.ack(self.lease_all(found))
        return found["group"].tolist()

    def lease_all(self, found: Entries) -> Entries:
        """Lease messages; returns them as they are then."""
        lease = self.named(RecordKind.LEASE, keys_of(found).tolist(), found["first"].tolist())
        lease.consumer, lease.consumers = np.zeros(len(found), np.uint16), (b"a" * 16,)
        lease.lease_ms = np.array([30_000], np.uint64)
        leased: Entries = self.apply(lease).leased.copy()
        return leased

    def ack(self, leased: Entries) -> None:
        keys, firsts = keys_of(leased).tolist(), leased["first"].tolist()
        self.apply(self.named(RecordKind.ACK, keys, firsts, token=leased["token"].copy()))


class ClosedGroups(ManyGroups):
    """Most groups are closed most of the time."""

    def new_queue(self, timeline: Timeline) -> Any:
        self.leases, self.rates = LeaseTable(), GroupRates()
        queue = FairQueue(timeline, self.leases, self.rates)
        timeline.led_by(queue)
        return queue

    def close(self, document: str) -> None:
        for number in range(GROUPS):
            record = Record(RecordKind.GROUP, UID, 0, 0, 0)
            record.name, record.document = f"g{number % 100}.x{number}", document
            self.apply(record)
            self.queue.group_changed(record.name)

    def hold(self) -> list[int]:
        """Lease what comes next; returns the number of each one's group."""
        self.rates.begin(Now(self.stamp * 1000, self.stamp * 1000))
        found = self.queue.pop(self.stamp, AT_ONCE, self.leases.slot_of.keys())
        if not len(found):
            return []
        self.leases.add(self.lease_all(found), 1, 7, Phase.PROPOSED, NEVER_US)
        self.rates.spend(found, self.timeline.groups)
        return found["group"].tolist()

    def end_some(self) -> None:
        slots = np.array(sorted(self.leases.slot_of.values()), np.intp)
        slots = slots[[self.random.random() < 0.5 for _ in slots]]
        if len(slots):
            leased = self.leases.entry.take(slots)
            self.ack(leased)
            self.leases.remove(slots, keys_of(leased).tolist())


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


@pytest.mark.parametrize("document", ['{"max_unacked":1}', '{"burst":1,"rate":2}'])
def test_very_many_groups_that_are_closed_most_of_the_time_are_read_for_when_they_are_open(
    document: str,
) -> None:
    """Whoever is closed is in no ring, and most of what waits is on the disk only."""
    mesh = ClosedGroups(1)
    mesh.load()
    mesh.close(document)
    got: Counter[int] = Counter()
    idle = 0
    while mesh.timeline.live_count:
        given = mesh.hold()
        assert max(Counter(given).values(), default=0) <= 1
        got.update(given)
        waits = mesh.timeline.live_count > len(mesh.leases)
        idle = idle + 1 if waits and not given else 0
        assert idle <= GROUPS // FAIR_WAKES_MAX + LOOKS, "something waits, and nothing comes out"
        mesh.end_some()
        mesh.stamp += 100
        mesh.catch_up()
        assert mesh.timeline.hot_count <= mesh.hot_rows
    assert set(got.values()) == {EACH}
    assert len(got) == GROUPS
    assert not mesh.leases.slot_of
    assert not mesh.hold()
    assert len(mesh.queue) <= mesh.hot_rows

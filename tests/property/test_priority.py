"""A priority topic through the timeline, its bounded window and a real store, against a sorted list."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from dueq.core.delivery.priority_queue import PriorityQueue
from dueq.core.delivery.turns import WaitingQueue
from dueq.core.ports.entry import Entries, keys_of
from dueq.core.ports.persistence import (
    AppendLog,
    CreatePartition,
    EntriesRead,
    IndexScanned,
    ReadEntries,
    ScanIndex,
)
from dueq.core.state.order import Order
from dueq.core.state.priority import PriorityOrder, ranks_of
from dueq.core.state.timeline import Timeline
from dueq.storage.ordered import layout
from dueq.storage.ordered.memory import MemoryEngine
from dueq.storage.ordered.store import OrderedStore
from dueq_codecs.records import LEVEL_OF_KINDS, LogEntry, Record, RecordKind, RequestRef

UID = 5
START = 1_700_000_000_000
HOT_ROWS = 12
RANKS = (0, 1, 2, 9, 400, 65_535)


class Mesh:
    """One replica that leads itself: what is logged is committed at once.

    Attributes:
        waiting: key -> (rank, wait_at, first) of all that waits.
        leased: key -> its entry.
    """

    order: Order = PriorityOrder()
    hot_rows = HOT_ROWS

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.engines = MemoryEngine(), MemoryEngine()
        self.store = OrderedStore.on(*self.engines, "b1", "c", "0" * 16)
        self.store.commit([CreatePartition(UID, "t")])
        self.timeline = Timeline(UID, hot_rows_max=self.hot_rows, order=self.order)
        self.queue = self.new_queue(self.timeline)
        self.stamp = START
        self.waiting: dict[int, tuple[int, int, int]] = {}
        self.leased: dict[int, Entries] = {}
        self.requests = 0

    def new_queue(self, timeline: Timeline) -> WaitingQueue:
        return PriorityQueue(timeline)

    @property
    def hot_rows_max(self) -> int:
        """A window that has two rows of each class shrinks."""
        return max(HOT_ROWS, 2 * len(RANKS))

    # -------------------------------------------------------------- the log

    def apply(self, record: Record, body: bytes = b"") -> Any:
        record.version = LEVEL_OF_KINDS
        record.sequence, record.epoch, record.stamp = self.timeline.applied + 1, 1, self.stamp
        if record.kind != RecordKind.LEASE:
            self.requests += 1
            record.requests = (RequestRef(b"c" * 16, self.requests, self.requests, record.rows),)
        self.store.commit([AppendLog(UID, [LogEntry(record, body)])])
        return self.replay(record)

    def replay(self, record: Record) -> Any:
        asked = self.timeline.cold(record)
        if asked is not None:
            found = self.store.read(ReadEntries(1, UID, *asked))
            assert isinstance(found, EntriesRead)
            self.timeline.entries_read(found.entries, (asked.first, asked.sequence, asked.row))
        applied = self.timeline.apply(record)
        self.queue.add(applied.waiting)
        return applied

    def named(self, kind: RecordKind, keys: list[int], firsts: list[int], **columns: Any) -> Record:
        record = Record(kind, UID, 0, 0, 0)
        record.target_sequence = np.array([key >> 16 for key in keys], np.uint64)
        record.target_row = np.array([key & 0xFFFF for key in keys], np.uint16)
        record.first = np.array(firsts, np.uint64)
        if kind != RecordKind.LEASE:
            record.token = np.zeros(len(keys), np.uint64)
        for name, value in columns.items():
            setattr(record, name, value)
        return record

    # -------------------------------------------------------------- what users do

    def insert(self, rows: int) -> None:
        ranks = [self.random.choice(RANKS) for _ in range(rows)] if self.random.random() < 0.9 else [0] * rows
        dues = [self.stamp + self.random.randrange(-500, 4_000) for _ in range(rows)]
        record = Record(RecordKind.INSERT, UID, 0, 0, 0)
        record.due = np.array(dues, np.uint64)
        record.size = record.crc = np.zeros(rows, np.uint32)
        record.rank = np.array(ranks if any(ranks) else [], np.uint16)
        sequence = self.timeline.applied + 1
        for row, (rank, due) in enumerate(zip(ranks, dues, strict=True)):
            wait_at, key = max(due, self.stamp), sequence << 16 | row
            self.waiting[key] = rank, wait_at, wait_at
        self.apply(record)

    def move(self) -> None:
        """To another instant."""
        if not self.waiting:
            return
        key = self.random.choice(sorted(self.waiting))
        rank, wait_at, first = self.waiting[key]
        due = self.random.choice((wait_at, wait_at - 1, self.stamp + self.random.randrange(-5, 4_000)))
        self.waiting[key] = rank, max(due, self.stamp), first
        self.apply(self.named(RecordKind.MOVE, [key], [first], due=np.array([due], np.uint64)))

    def change(self) -> None:
        """Several at once, to other ranks."""
        keys = self.random.sample(sorted(self.waiting), min(len(self.waiting), self.random.randint(1, 5)))
        if not keys:
            return
        ranks = [self.random.choice(RANKS) for _ in keys]
        firsts = [self.waiting[key][2] for key in keys]
        for key, rank in zip(keys, ranks, strict=True):
            self.waiting[key] = rank, *self.waiting[key][1:]
        self.apply(self.named(RecordKind.CHANGE, keys, firsts, rank=np.array(ranks, np.uint16)))

    def cancel(self) -> None:
        if self.waiting:
            key = self.random.choice(sorted(self.waiting))
            first = self.waiting.pop(key)[2]
            self.apply(self.named(RecordKind.CANCEL, [key], [first]))

    def nack(self) -> None:
        if self.leased:
            key = self.random.choice(sorted(self.leased))
            row = self.leased.pop(key)
            delay = self.random.randrange(2_000)
            self.waiting[key] = int(ranks_of(row)[0]), self.stamp + delay, int(row["first"][0])
            amount = np.array([delay], np.uint64)
            token = row["token"].copy()
            self.apply(
                self.named(RecordKind.NACK, [key], [int(row["first"][0])], token=token, amount_ms=amount)
            )

    # -------------------------------------------------------------- what the replica does

    def ready(self) -> list[tuple[int, int, int]]:
        """All that is ready, as (rank, wait_at, key), in order."""
        found = [(rank, at, key) for key, (rank, at, _) in self.waiting.items() if at <= self.stamp]
        return sorted(found)

    def check_order(self, found: Entries) -> list[tuple[int, int, int]]:
        """The queue must give the beginning of the sorted list."""
        got = list(
            zip(ranks_of(found).tolist(), found["wait_at"].tolist(), keys_of(found).tolist(), strict=True)
        )
        assert got == self.ready()[: len(got)]
        return got

    def lease(self, limit: int) -> int:
        """Lease what comes next."""
        found = self.queue.pop(self.stamp, limit, {}.keys())
        got = self.check_order(found)
        if not got:
            return 0
        record = self.named(RecordKind.LEASE, [key for *_, key in got], found["first"].tolist())
        record.consumer, record.consumers = np.zeros(len(got), np.uint16), (b"a" * 16,)
        record.lease_ms = np.array([30_000], np.uint64)
        for row in np.split(self.apply(record).leased, len(got)):
            key = int(keys_of(row)[0])
            del self.waiting[key]
            self.leased[key] = row
        return len(got)

    def checkpoint(self) -> None:
        save = self.timeline.checkpoint()
        if save is not None:
            self.store.commit([save])
            self.timeline.checkpoint_saved(save.applied)

    def scan(self) -> bool:
        """Do what the window wants; returns whether it wanted anything."""
        wanted = self.timeline.wants_scan()
        if wanted is None:
            return False
        found = self.store.read(ScanIndex(1, UID, *wanted))
        assert isinstance(found, IndexScanned)
        gained = self.timeline.scanned(
            found.entries, found.exhausted, wanted[:2], found.looked_to, found.left_out, found.following,
            found.beyond,
        )  # fmt: skip
        self.queue.add(gained)
        return True

    def restart(self) -> None:
        self.store = OrderedStore.on(*self.engines, "b1", "c", "0" * 16)
        (recovered,) = self.store.recover()
        self.timeline = Timeline(UID, recovered, self.hot_rows, order=self.order)
        self.queue = self.new_queue(self.timeline)
        for entry in recovered.tail:
            self.replay(entry.record)
        self.queue.renew(self.timeline.deliverable_hot())
        assert self.timeline.scheduled_count == len(self.waiting)
        assert keys_of(self.timeline.leased()).tolist() == sorted(self.leased)

    def settle(self) -> None:
        """Write down what there is, and let the window have what it wants."""
        self.checkpoint()
        rows = [key[3:4] for key in self.engines[0].keys(*layout.whole(UID))]
        assert rows.count(b"i") == rows.count(b"o") == len(self.waiting), "nothing stays where it was before"
        for _ in range(1_000):
            if not self.scan():
                break
        else:
            pytest.fail("the window wants more and more")
        assert self.timeline.hot_count <= self.hot_rows_max
        assert self.timeline.memory_rows <= self.hot_rows_max + len(self.leased) + self.timeline.dirty_rows
        expected = self.timeline.forecast(START, 4 * 3_600)
        assert sum(count for _, count in expected) == len(self.waiting), "also of what is only on the disk"

    def live_through(self, steps: int) -> None:
        """Do anything, then lease all that waits."""
        for _ in range(steps):
            self.stamp += self.random.choice((0, 0, 0, 40, 300))
            what = self.random.random()
            if what < 0.35:
                self.insert(self.random.randint(1, 12))
            elif what < 0.43:
                self.move()
            elif what < 0.5:
                self.change()
            elif what < 0.6:
                self.cancel()
            elif what < 0.7:
                self.nack()
            elif what < 0.85:
                self.lease(self.random.randint(1, 6))
            elif what < 0.88:
                self.restart()
            elif what < 0.94:
                self.scan()
            else:
                self.settle()
        self.stamp += 10_000
        while self.waiting:
            assert self.settle_and_lease(3), "something waits, and nothing comes out"

    def settle_and_lease(self, limit: int) -> int:
        """Lease once all that the window wants is read."""
        self.settle()
        return self.lease(limit)


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("seed", range(16))
def test_what_comes_out_is_always_the_first_of_the_order(seed: int) -> None:
    Mesh(seed).live_through(150)


def test_nothing_is_written_because_messages_fall_due() -> None:
    """Being ready is no state: it follows from the instants that the index has."""
    mesh = Mesh(1)
    for _ in range(30):
        mesh.insert(12)
    mesh.settle()
    before = [dict(engine.scan(*layout.whole(UID))) for engine in mesh.engines]
    mesh.stamp += 10_000
    assert mesh.timeline.checkpoint() is None
    assert mesh.lease(1) == 1, "all have fallen due"
    mesh.restart()
    after = [dict(engine.scan(*layout.whole(UID))) for engine in mesh.engines]
    logged = {key for key in after[0] if key not in before[0]}
    assert len(logged) == 1, "the LEASE is all that was written"
    assert {key: after[0][key] for key in before[0]} == before[0]
    assert after[1] == before[1]


class ManyRanks(Mesh):
    """A partition with a rank for each message, whose window is much smaller.

    Attributes:
        scans: how often the window had something read.
    """

    scans = 0

    def insert_ranks(self, count: int) -> None:
        record = Record(RecordKind.INSERT, UID, 0, 0, 0)
        record.due = np.full(count, self.stamp, np.uint64)
        record.size = record.crc = np.zeros(count, np.uint32)
        record.rank = np.arange(count, dtype=np.uint16)
        sequence = self.timeline.applied + 1
        for row in range(count):
            self.waiting[sequence << 16 | row] = row, self.stamp, self.stamp
        self.apply(record)

    def scan(self) -> bool:
        wanted = super().scan()
        self.scans += wanted
        return wanted


def test_many_ranks_are_read_in_few_scans() -> None:
    mesh = ManyRanks(1)
    mesh.hot_rows = 128
    for _ in range(3):
        mesh.insert_ranks(2_000)
    mesh.checkpoint()
    mesh.restart()
    assert mesh.lease(1) == 0, "nobody knows yet what comes first"
    while mesh.scan():
        pass
    assert mesh.scans <= 2_000 // 64 + 10
    assert mesh.timeline.memory_rows <= 2 * 2_000
    mesh.scans = leased = 0
    while leased < 1_500:
        leased += mesh.lease(50)
        mesh.scan()
    assert mesh.scans <= 1_500 // 8, "those that come next are read together"

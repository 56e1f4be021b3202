"""A store on two engines that outlive it, and what tests write into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from zlib import crc32

import numpy as np
import pytest

from dueq.core.ports.entry import ENTRY, Entries, State
from dueq.core.ports.persistence import CreatePartition
from dueq.storage.ordered.engine import Operation
from dueq.storage.ordered.store import OrderedStore
from dueq.storage.port import StoreFailed
from dueq_chaos.sim.environment.engine import ForgetfulEngine
from dueq_codecs.records import LogEntry, Record, RecordKind, RequestRef

UID = 9


class Disk:
    """Two memory engines that outlive their stores."""

    def __init__(self) -> None:
        self.timeline, self.payload = ForgetfulEngine(), ForgetfulEngine()
        self.store = self.open()
        self.store.commit([CreatePartition(UID, "t")])

    def open(self) -> OrderedStore:
        self.store = OrderedStore.on(self.timeline, self.payload, "b1", "cluster", "store")
        return self.store


def insert(sequence: int, payloads: list[bytes], epoch: int = 1, due: int = 1_000) -> LogEntry:
    record = Record(RecordKind.INSERT, UID, sequence, epoch, 500)
    record.requests = (RequestRef(b"c" * 16, sequence, 1, len(payloads)),)
    record.due = np.full(len(payloads), due, np.uint64)
    record.size = np.array([len(payload) for payload in payloads], np.uint32)
    record.crc = np.array([crc32(payload) for payload in payloads], np.uint32)
    return LogEntry(record, b"".join(payloads))


def barrier(sequence: int, epoch: int) -> LogEntry:
    return LogEntry(Record(RecordKind.BARRIER, UID, sequence, epoch, 500))


def entries(*rows: tuple[int, int, int], payload: bytes = b"xy", block_rows: int = 1) -> Entries:
    """(sequence, row, wait_at) of waiting messages whose payloads lie in one block per sequence."""
    found = np.zeros(len(rows), ENTRY)
    for at, (sequence, row, wait_at) in enumerate(rows):
        found[at]["sequence"], found[at]["row"], found[at]["wait_at"] = sequence, row, wait_at
        found[at]["first"] = found[at]["due"] = 1_000
        found[at]["size"], found[at]["crc"] = len(payload), crc32(payload)
        found[at]["place"], found[at]["block_rows"] = row * len(payload), block_rows
        found[at]["state"] = State.WAITING
    return found


def crash_after(disk: Disk, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """Let so many writes of either engine through, and no more."""
    left = [writes]

    def limited(write: Callable[..., None]) -> Callable[..., None]:
        def attempt(operations: Iterable[Operation], *, sync: bool) -> None:
            if not left[0]:
                raise StoreFailed("the power is gone")
            left[0] -= 1
            write(operations, sync=sync)

        return attempt

    for engine in (disk.timeline, disk.payload):
        monkeypatch.setattr(engine, "write", limited(engine.write))

"""What one replica writes in a life: commit by commit, always the same, with what must be there after each of them.

Run as a program it writes that history into a store until it is killed, and says the number of each commit that has
returned.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from zlib import crc32

import numpy as np

from dueq.core.ports.entry import ENTRY, Entries, State
from dueq.core.ports.persistence import (
    AppendLog,
    CreatePartition,
    IndexScanned,
    PayloadsRead,
    ReadPayloads,
    RecoveredPartition,
    SaveCheckpoint,
    SaveMeta,
    ScanIndex,
    StoreWrite,
    TrimLog,
)
from dueq.storage.kinds import Opening, kind_of, open_store
from dueq.storage.port import Store
from dueq_codecs.records import LogEntry, Record, RecordKind, RequestRef

UID = 9
CHECKPOINT_EVERY = 5
"""Commits from one checkpoint to the next; the log before the last but one goes with it."""


def payloads_of(sequence: int) -> list[bytes]:
    """The payloads of one record: some are empty, some fill a block of their own."""
    return [b"", b"%d" % sequence * (sequence % 7), bytes([sequence % 256]) * (sequence % 11 * 9_000)]


def insert(sequence: int, payloads: list[bytes], epoch: int = 1, uid: int = UID) -> LogEntry:
    record = Record(RecordKind.INSERT, uid, sequence, epoch, 500)
    record.requests = (RequestRef(b"c" * 16, sequence, 1, len(payloads)),)
    record.due = np.full(len(payloads), 1_000, np.uint64)
    record.size = np.array([len(payload) for payload in payloads], np.uint32)
    record.crc = np.array([crc32(payload) for payload in payloads], np.uint32)
    return LogEntry(record, b"".join(payloads))


def entries(sequence: int, payloads: list[bytes], wait_at: list[int]) -> Entries:
    """The waiting messages of one record whose payloads fit into one block."""
    found = np.zeros(len(payloads), ENTRY)
    found["sequence"], found["row"] = sequence, np.arange(len(payloads))
    found["wait_at"] = found["first"] = wait_at
    found["size"] = [len(payload) for payload in payloads]
    found["crc"] = [crc32(payload) for payload in payloads]
    found["place"][1:] = np.cumsum(found["size"])[:-1]
    found["block_rows"], found["state"] = len(payloads), State.WAITING
    return found


def commit_of(number: int) -> list[StoreWrite]:
    """The writes of commit `number`, from 0; each after the first appends the record of its number."""
    if number == 0:
        return [CreatePartition(UID, "t")]
    writes: list[StoreWrite] = [AppendLog(UID, [insert(number, payloads_of(number))])]
    writes.append(SaveMeta(UID, 1, number - 1))
    if number % CHECKPOINT_EVERY == 0:
        applied = number - 1
        fresh = range(max(applied - CHECKPOINT_EVERY, 0) + 1, applied + 1)
        put = np.concatenate([entries(n, [b"x" * n], [1_000 + n]) for n in fresh])
        short = number % (2 * CHECKPOINT_EVERY) == 0
        writes.append(SaveCheckpoint(UID, applied, 1_000, put=put, short=short, summary=b"%d" % applied))
        if applied > CHECKPOINT_EVERY:
            writes.append(TrimLog(UID, applied - CHECKPOINT_EVERY + 1))
    return writes


def verify(store: Store, found: RecoveredPartition, returned: int) -> None:
    """Hold a store that was opened after a crash against the history.

    Args:
        store: the store.
        found: what it recovered.
        returned: the last commit that is known to have returned; one more may have been under way.
    """
    assert not found.damaged
    assert found.log_end in (returned, returned + 1)
    assert found.applied in {0, *range(CHECKPOINT_EVERY - 1, found.log_end, CHECKPOINT_EVERY)}
    assert found.applied >= returned // CHECKPOINT_EVERY * CHECKPOINT_EVERY - 1
    assert found.commit in (found.log_end - 1, found.log_end - 2, 0)
    assert [entry.record.sequence for entry in found.tail] == list(
        range(found.applied + 1, found.log_end + 1)
    )
    for entry in found.tail:
        assert bytes(entry.body) == b"".join(payloads_of(entry.record.sequence))
    assert found.summary == (b"%d" % found.applied if found.applied else b"")
    scanned = store.read(ScanIndex(1, UID, 0, 0, 1 << 20))
    assert isinstance(scanned, IndexScanned)
    assert scanned.entries["sequence"].tolist() == list(range(1, found.applied + 1))
    read = store.read(ReadPayloads(1, UID, scanned.entries))
    assert isinstance(read, PayloadsRead)
    assert len(read.payloads) == found.applied


if __name__ == "__main__":
    kind, folder = kind_of(sys.argv[1]), Path(sys.argv[2])
    written = open_store(kind, Opening("b1", folder, 1 << 30))
    written.recover()
    for number in count():
        written.commit(commit_of(number))
        print(number, flush=True)

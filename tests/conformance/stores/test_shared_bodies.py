"""One body for many messages, as a store keeps it."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import numpy as np
import pytest
from tests.conformance.stores.conftest import EVERY, Place
from tests.conformance.stores.history import UID, entries

from dueq.core.ports.entry import ENTRY, FLAG_KEYED, FULL, Entries, widened
from dueq.core.ports.persistence import (
    AppendLog,
    CreatePartition,
    InstallBegin,
    InstallEnd,
    InstallRows,
    LogRead,
    PageRead,
    PayloadsRead,
    ReadLog,
    ReadPage,
    ReadPayloads,
    ReadSnapshot,
    SaveCheckpoint,
    SaveMeta,
    SnapshotRead,
    TrimLog,
)
from dueq.storage.port import Store
from dueq_codecs.records import LogEntry, Record, RecordKind
from dueq_codecs.rules import shared_name

BODY = b"dear customer" * 1_500
OWN = [b"", b"\2ab", b""]


def brought() -> LogEntry:
    """The record that brings the body."""
    record = Record(RecordKind.BODY, UID, 1, 1, 500)
    record.shared, record.shared_size = shared_name(BODY), len(BODY)
    record.size, record.crc = np.array([len(BODY)], np.uint32), np.array([crc32(BODY)], np.uint32)
    return LogEntry(record, BODY)


def named() -> LogEntry:
    """An INSERT whose payloads go on with it."""
    record = Record(RecordKind.INSERT, UID, 2, 1, 500)
    record.shared, record.shared_size = shared_name(BODY), len(BODY)
    record.due = np.full(3, 1_000, np.uint64)
    record.size = np.array([len(own) + len(BODY) for own in OWN], np.uint32)
    record.crc = np.array([crc32(own + BODY) for own in OWN], np.uint32)
    return LogEntry(record, b"".join(OWN))


def rows() -> Entries:
    """Its messages."""
    found = widened(entries(2, OWN, [1_000, 1_001, 1_002]), FULL.itemsize)
    found["size"], found["crc"], found["body"] = named().record.size, named().record.crc, 1
    return found


@pytest.fixture
def begun(store: Store) -> Store:
    """A store that has both."""
    store.recover()
    store.commit([CreatePartition(UID, "t"), AppendLog(UID, [brought(), named()]), SaveMeta(UID, 1, 2)])
    store.commit([SaveCheckpoint(UID, 2, 0, put=rows()), TrimLog(UID, 3)])
    return store


def payloads(store: Store) -> list[bytes | None]:
    answer = store.read(ReadPayloads(2, UID, rows()))
    assert isinstance(answer, PayloadsRead)
    return answer.payloads


def test_payloads_go_on_with_it_though_its_record_was_trimmed(begun: Store) -> None:
    assert payloads(begun) == [own + BODY for own in OWN]
    page = begun.read(ReadPage(1, UID, 7, True, 0, 0, (0, 0), 10, 1 << 20, payloads=True))
    assert isinstance(page, PageRead)
    assert page.body == b"".join(own + BODY for own in OWN)
    begun.commit([SaveCheckpoint(UID, 2, 0, finished=rows())])
    assert payloads(begun) == [BODY, None, BODY], "what a message has of its own went with it"


def test_the_log_gives_both_records_with_their_bytes(store: Store) -> None:
    store.recover()
    store.commit([CreatePartition(UID, "t"), AppendLog(UID, [brought(), named()]), SaveMeta(UID, 1, 2)])
    answer = store.read(ReadLog(4, UID, 1, 1 << 20))
    assert isinstance(answer, LogRead)
    assert [bytes(entry.body) for entry in answer.entries] == [BODY, OWN[1]]


def test_it_goes_when_the_state_says_so(begun: Store) -> None:
    gone = np.zeros(1, ENTRY)
    gone["sequence"], gone["size"], gone["block_rows"] = 1, len(BODY), 1
    begun.commit([SaveCheckpoint(UID, 2, 0, finished=gone)])
    assert payloads(begun) == [None, None, None]


@pytest.mark.parametrize("kind", EVERY)
def test_a_snapshot_brings_it(begun: Store, another: Callable[[str], Place], kind: str) -> None:
    part = begun.read(ReadSnapshot(3, UID, 0, 0, 1 << 20))
    assert isinstance(part, SnapshotRead)
    assert part.last
    store = another(kind).open()
    store.recover()
    store.commit([InstallBegin(UID, "t", 1)])
    store.commit([InstallRows(UID, part.data), InstallEnd(UID, part.applied, part.applied_epoch, 1)])
    assert payloads(store) == [own + BODY for own in OWN]


def test_keys_are_read_without_it(begun: Store) -> None:
    keyed = rows()[1:2]
    keyed["flags"], keyed["crc"] = FLAG_KEYED, 0
    begun.commit([SaveCheckpoint(UID, 2, 0, put=keyed)])
    page = begun.read(ReadPage(1, UID, 8, True, 1_001, 1_002, (0, 0), 10, 1 << 20, payloads=False))
    assert isinstance(page, PageRead)
    assert page.body == OWN[1], "one byte of length, then the key"

"""Browsing in every store: pages of a snapshot, as the core asks for them."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
import pytest
from tests.conformance.stores.conftest import Place

from dueq.core.ports.entry import ENTRY, FLAG_KEYED, FLAG_META, FLAG_UPLOAD, Entries, State, keys_of
from dueq.core.ports.persistence import (
    AppendLog,
    ChunkRead,
    ClosePages,
    CreatePartition,
    PageRead,
    PutChunk,
    ReadChunk,
    ReadPage,
    SaveCheckpoint,
    TrimLog,
)
from dueq.core.state.summary import Summary
from dueq.limits import CHUNK_BYTES
from dueq.storage.port import Store
from dueq_codecs.meta import Meta, packed_headers, prefix_of, with_key
from dueq_codecs.records import LogEntry, Record, RecordKind

UID, OTHER = 7, 8
UPLOAD = 3 << 32 | 1


@pytest.fixture
def store(place: Place) -> Store:
    found = place.open()
    found.commit([CreatePartition(UID, "t"), CreatePartition(OTHER, "t")])
    return found


def insert(store: Store, sequence: int, payloads: list[bytes], uid: int = UID) -> None:
    record = Record(RecordKind.INSERT, uid, sequence, 1, 500)
    record.due = np.full(len(payloads), 1, np.uint64)
    record.size = np.array([len(payload) for payload in payloads], np.uint32)
    record.crc = np.array([crc32(payload) for payload in payloads], np.uint32)
    store.commit([AppendLog(uid, [LogEntry(record, b"".join(payloads))])])


def entries(
    sequence: int, payloads: list[bytes], wait_at: list[int], flags: int = 0, job: int = 0
) -> Entries:
    """Rows of one record, whose payloads are in one block."""
    found = np.zeros(len(payloads), ENTRY)
    found["sequence"], found["row"] = sequence, np.arange(len(payloads))
    found["wait_at"] = found["first"] = wait_at
    found["size"] = [len(payload) for payload in payloads]
    found["crc"] = [crc32(payload) for payload in payloads]
    found["place"][1:] = np.cumsum(found["size"])[:-1]
    found["block_rows"], found["state"], found["flags"], found["job"] = (
        len(payloads),
        State.WAITING,
        flags,
        job,
    )
    return found


def checkpoint(store: Store, applied: int, put: Entries, low_water: int = 0, uid: int = UID) -> None:
    summary = Summary(1_000 + applied, len(put), 0).pack()
    store.commit([SaveCheckpoint(uid, applied, low_water, put=put, summary=summary)])


def page(store: Store, pages: int = 1, begin: bool = False, **fields: Any) -> PageRead:
    asked: dict[str, Any] = {"from_ms": 0, "until_ms": 0, "after": (0, 0), "limit": 100, "bytes_max": 1 << 20,
                             "payloads": False, **fields}  # fmt: skip
    answer = store.read(ReadPage(5, UID, pages, begin, **asked))
    assert isinstance(answer, PageRead)
    assert (answer.token, answer.uid, answer.pages) == (5, UID, pages)
    assert int(answer.body_size.sum()) == len(answer.body)
    return answer


def waits(found: PageRead) -> list[int]:
    return [int(instant) for instant in found.entries["wait_at"]]


def test_pages_follow_each_other_in_order_and_the_last_says_so(store: Store) -> None:
    payloads = [b"%d" % number for number in range(7)]
    insert(store, 1, payloads)
    insert(store, 1, [b"another partition's"], OTHER)
    checkpoint(store, 1, entries(1, payloads, [70, 10, 30, 30, 20, 60, 50]))
    checkpoint(store, 1, entries(1, [b"another partition's"], [5]), uid=OTHER)
    first = page(store, begin=True, limit=3, payloads=True)
    assert (first.applied, Summary.unpack(first.summary).stamp, first.last) == (1, 1_001, False)
    assert waits(first) == [10, 20, 30]
    second = page(store, after=first.after, limit=3, payloads=True)
    third = page(store, after=second.after, limit=3, payloads=True)
    assert waits(second) + waits(third) == [30, 50, 60, 70]
    assert (second.last, third.last) == (False, True)
    assert first.body + second.body + third.body == b"1423650"


def test_a_page_that_is_just_full_is_the_last_if_nothing_follows(store: Store) -> None:
    insert(store, 1, [b"", b""])
    checkpoint(store, 1, entries(1, [b"", b""], [1, 2]))
    assert page(store, begin=True, limit=2).last
    assert waits(page(store, after=(2, 1 << 16 | 1))) == []


def test_a_range_begins_with_its_start_and_leaves_out_its_end(store: Store) -> None:
    insert(store, 1, [b""] * 4)
    checkpoint(store, 1, entries(1, [b""] * 4, [10, 20, 30, 40]), low_water=5)
    assert waits(page(store, begin=True, from_ms=20, until_ms=40)) == [20, 30]
    assert waits(page(store, from_ms=41)) == []
    assert waits(page(store, from_ms=25, after=(10, 1 << 16))) == [30, 40]


def test_what_is_changed_after_the_snapshot_does_not_show_and_its_payload_stays(store: Store) -> None:
    insert(store, 1, [b"kept"])
    row = entries(1, [b"kept"], [10])
    checkpoint(store, 1, row)
    assert page(store, begin=True).applied == 1
    insert(store, 2, [b"new"])
    gone = np.array([[10, int(keys_of(row)[0]), 10]], np.uint64)
    new = entries(2, [b"new"], [5])
    store.commit([SaveCheckpoint(UID, 2, 0, put=new, unwait=gone, finished=row), TrimLog(UID, 2)])
    old, now = page(store, payloads=True), page(store, 2, begin=True, payloads=True)
    assert (old.applied, waits(old), old.body) == (1, [10], b"kept")
    assert (now.applied, waits(now), now.body) == (2, [5], b"new")
    assert store.read(ClosePages(6, UID, 1)) is None
    assert waits(page(store, 2)) == [5]


def test_a_page_has_about_as_many_bytes_as_asked_for_and_one_row_at_least(store: Store) -> None:
    payloads = [b"a" * 600, b"b" * 600, b"c" * 5_000, b"d"]
    insert(store, 1, payloads)
    checkpoint(store, 1, entries(1, payloads, [1, 2, 3, 4]))
    first = page(store, begin=True, bytes_max=1_500, payloads=True)
    second = page(store, after=first.after, bytes_max=1_500, payloads=True)
    third = page(store, after=second.after, bytes_max=1_500, payloads=True)
    assert [waits(first), waits(second), waits(third)] == [[1, 2], [3], [4]]
    assert [first.last, second.last, third.last] == [False, False, True]
    assert len(page(store, bytes_max=1_500).entries) == 4


def test_hidden_jobs_are_left_out_and_pages_without_rows_move_on(store: Store) -> None:
    insert(store, 1, [b""] * 20)
    rows = entries(1, [b""] * 20, list(range(1, 21)))
    rows["job"][:19] = 4
    checkpoint(store, 1, rows)
    hidden = frozenset({4, 9})
    first = page(store, begin=True, limit=2, hidden=hidden)
    assert waits(first) == []
    assert not first.last
    assert first.after == (8, 1 << 16 | 7)
    second = page(store, after=first.after, limit=2, hidden=hidden)
    third = page(store, after=second.after, limit=2, hidden=hidden)
    assert (waits(second), waits(third), third.last) == ([], [20], True)
    assert len(page(store, limit=100).entries) == 20


def test_without_payloads_there_are_the_keys_of_those_that_have_one(store: Store) -> None:
    payloads = [with_key(b"one", b"payload"), with_key(b"", b"x")]
    plain = [b"\x01plain"]
    insert(store, 1, payloads)
    insert(store, 2, plain)
    rows = [entries(1, payloads, [1, 2], FLAG_KEYED), entries(2, plain, [3])]
    checkpoint(store, 2, np.concatenate(rows))
    found = page(store, begin=True)
    assert (found.body, found.body_size.tolist()) == (b"\x03one\0", [4, 1, 0])
    assert page(store, payloads=True).body == b"".join([*payloads, *plain])


def test_long_payloads_are_read_chunk_by_chunk_and_their_keys_with_the_page(store: Store) -> None:
    whole = with_key(b"long", bytes(range(256)) * 1_025)
    for number in range(2):
        store.commit(
            [PutChunk(UID, UPLOAD, number, whole[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES])]
        )
    row = entries(1, [whole], [1], FLAG_KEYED | FLAG_UPLOAD)
    row["place"] = UPLOAD
    checkpoint(store, 1, row)
    assert page(store, begin=True).body == b"\x04long"
    found = page(store, payloads=True)
    assert (found.body, found.body_size.tolist(), found.unreadable) == (b"", [0], 0)
    chunks = [store.read(ReadChunk(9, UID, UPLOAD, number, 1)) for number in range(3)]
    assert all(isinstance(chunk, ChunkRead) for chunk in chunks)
    data = [chunk.data for chunk in chunks if isinstance(chunk, ChunkRead)]
    assert b"".join(piece for piece in data if piece) == whole
    assert data[2] is None


def test_without_payloads_there_are_the_headers_of_those_that_have_some(store: Store) -> None:
    prefixes = [prefix_of(Meta.HEADERS, b"k", packed_headers({"a": "b"})), prefix_of(Meta.HEADERS, b"", b"")]
    payloads = [prefixes[0] + b"payload", prefixes[1] + b"x"]
    insert(store, 1, payloads)
    checkpoint(store, 1, entries(1, payloads, [1, 2], FLAG_META))
    found = page(store, begin=True)
    assert (found.body, found.body_size.tolist()) == (b"".join(prefixes), list(map(len, prefixes)))
    assert page(store, payloads=True).body == b"".join(payloads)


def test_a_page_of_long_headers_has_about_as_many_bytes_as_asked_for(store: Store) -> None:
    prefix = prefix_of(Meta.HEADERS, b"", packed_headers({"a": "v" * 16_000}))
    payloads = [prefix + b"x"] * 20
    insert(store, 1, payloads)
    checkpoint(store, 1, entries(1, payloads, list(range(1, 21)), FLAG_META))
    found = page(store, begin=True, bytes_max=100_000)
    assert 5 <= len(found.entries) <= 7
    assert not found.last


def test_a_payload_that_is_damaged_or_missing_costs_its_own_message(store: Store) -> None:
    insert(store, 1, [b"good", b"other"])
    rows = entries(1, [b"good", b"other"], [1, 2])
    rows["crc"][1] += 1
    missing = entries(2, [b"gone"], [3])
    checkpoint(store, 2, np.concatenate([rows, missing]))
    found = page(store, begin=True, payloads=True)
    assert (found.body, found.body_size.tolist(), found.unreadable) == (b"good", [4, 0, 0], 2)


def test_a_partition_without_a_checkpoint_shows_nothing(store: Store) -> None:
    found = page(store, begin=True)
    assert (found.applied, len(found.entries), found.last, found.summary) == (0, 0, True, b"")


def test_what_is_not_open_has_no_pages(store: Store) -> None:
    assert store.read(ReadPage(1, UID, 5, False, 0, 0, (0, 0), 10, 10, False)) is None
    chunk = store.read(ReadChunk(1, UID, UPLOAD, 0, 5))
    assert isinstance(chunk, ChunkRead)
    assert chunk.data is None


# ------------------------------------------------------------------ an index with classes

CLASS_BYTES = 2


def ranked(store: Store, applied: int, put: Entries, ranks: list[int]) -> None:
    """A checkpoint of rows that have a class each."""
    of = np.array(ranks, ">u2").view(np.uint8).reshape(-1, CLASS_BYTES)
    summary = Summary(1_000 + applied, len(put), 0).pack()
    store.commit([SaveCheckpoint(UID, applied, 0, put=put, put_of=of, summary=summary)])


def rows_of(found: PageRead) -> list[int]:
    return found.entries["row"].tolist()


def test_pages_go_class_by_class_and_go_on_behind_any_row(store: Store) -> None:
    insert(store, 1, [b""] * 7)
    ranked(store, 1, entries(1, [b""] * 7, [30, 10, 20, 40, 10, 10, 50]), [9, 9, 0, 0, 65_535, 300, 9])
    order = [2, 3, 1, 0, 6, 5, 4]
    for limit in (1, 2, 3, 7):
        shown: list[int] = []
        found = page(store, begin=True, limit=limit, class_bytes=CLASS_BYTES)
        shown += rows_of(found)
        while not found.last:
            found = page(store, after=found.after, limit=limit, class_bytes=CLASS_BYTES)
            shown += rows_of(found)
        assert shown == order
        store.read(ClosePages(6, UID, 1))


def test_pages_go_on_behind_a_row_that_has_gone_if_its_class_is_known(store: Store) -> None:
    insert(store, 1, [b""] * 5)
    ranked(store, 1, entries(1, [b""] * 5, [30, 10, 20, 40, 10]), [9, 9, 0, 0, 300])
    behind = {"after": (20, 99 << 16), "class_bytes": CLASS_BYTES}
    assert rows_of(page(store, begin=True, **behind, after_of=(9).to_bytes(CLASS_BYTES, "big"))) == [0, 4]


def test_a_range_of_instants_is_one_in_every_class(store: Store) -> None:
    insert(store, 1, [b""] * 6)
    ranked(store, 1, entries(1, [b""] * 6, [10, 20, 30, 10, 20, 30]), [4, 4, 4, 7, 7, 7])
    found = page(store, begin=True, from_ms=20, until_ms=30, class_bytes=CLASS_BYTES)
    assert (rows_of(found), found.last) == ([1, 4], True)
    found = page(store, from_ms=20, limit=3, class_bytes=CLASS_BYTES)
    assert (rows_of(found), found.last) == ([1, 2, 4], False)
    assert rows_of(page(store, from_ms=20, after=found.after, class_bytes=CLASS_BYTES)) == [5]


def test_many_classes_without_a_row_in_the_range_are_passed_by_in_several_reads(store: Store) -> None:
    insert(store, 1, [b""] * 900)
    ranked(store, 1, entries(1, [b""] * 900, [10] * 899 + [50]), list(range(900)))
    found = page(store, begin=True, from_ms=20, class_bytes=CLASS_BYTES)
    reads = 1
    while not len(found.entries):
        assert not found.last
        found = page(store, from_ms=20, after=found.after, of=found.of, class_bytes=CLASS_BYTES)
        reads += 1
    assert (rows_of(found), found.last) == ([899], True)
    assert reads > 2


def test_a_page_whose_payloads_are_too_long_ends_in_the_middle_of_a_class(store: Store) -> None:
    payloads = [b"a" * 600, b"b" * 600, b"c" * 600]
    insert(store, 1, payloads)
    ranked(store, 1, entries(1, payloads, [1, 1, 1]), [2, 1, 1])
    first = page(store, begin=True, bytes_max=1_000, payloads=True, class_bytes=CLASS_BYTES)
    second = page(store, after=first.after, bytes_max=1_000, payloads=True, class_bytes=CLASS_BYTES)
    third = page(store, after=second.after, bytes_max=1_000, payloads=True, class_bytes=CLASS_BYTES)
    assert [rows_of(first), rows_of(second), rows_of(third)] == [[1], [2], [0]]
    assert [first.last, second.last, third.last] == [False, False, True]

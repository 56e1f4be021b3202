"""Pages of what a partition holds: how much is on one, where the next one begins, and who has been given back why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.storage.ordered.disk import UID, Disk, entries, insert

from dueq.core.ports.entry import FLAG_KEYED, FLAG_UPLOAD, FULL, Entries, State, widened
from dueq.core.ports.persistence import (
    AppendLog,
    ChunkRead,
    ClosePages,
    DropUpload,
    PageRead,
    PutChunk,
    ReadChunk,
    ReadPage,
    SaveCheckpoint,
)
from dueq.limits import CHUNK_BYTES
from dueq.storage.ordered import browsing
from dueq_codecs.meta import with_key

DIED_MS = 5_000


@pytest.fixture
def disk() -> Disk:
    return Disk()


def page(disk: Disk, pages: int = 1, begin: bool = False, **fields: Any) -> PageRead:
    asked: dict[str, Any] = {
        "from_ms": 0, "until_ms": 0, "after": (0, 0), "limit": 100, "bytes_max": 1 << 20, "payloads": False,
        **fields,
    }  # fmt: skip
    found = disk.store.read(ReadPage(1, UID, pages, begin, **asked))
    assert isinstance(found, PageRead)
    return found


def rows(found: PageRead) -> list[int]:
    return found.entries["row"].tolist()


def waiting(disk: Disk, count: int) -> None:
    """So many messages, with payloads of two bytes."""
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"] * count)])])
    put = entries(*((1, row, 1_000 + row) for row in range(count)), block_rows=count)
    disk.store.commit([SaveCheckpoint(UID, 1, 0, put=put)])


def uploaded(disk: Disk, count: int, key: bytes = b"key") -> Entries:
    """So many messages whose payloads are uploads and begin with a key; the first chunk of each is on the disk."""
    first = with_key(key, bytes(CHUNK_BYTES))[:CHUNK_BYTES]
    disk.store.commit([PutChunk(UID, 1 + row, 0, first) for row in range(count)])
    put = entries(*((1, row, 1_000 + row) for row in range(count)))
    put["flags"], put["place"], put["size"] = FLAG_KEYED | FLAG_UPLOAD, 1 + np.arange(count), 2 * CHUNK_BYTES
    disk.store.commit([AppendLog(UID, [insert(1, [b""] * count)]), SaveCheckpoint(UID, 1, 0, put=put)])
    return put


# ---------------------------------------------------------------- how much


def test_a_page_has_no_more_rows_than_asked_for_though_more_were_looked_at(disk: Disk) -> None:
    """Where jobs are hidden, more rows are looked at than may be shown."""
    waiting(disk, 10)
    found = page(disk, begin=True, limit=3, hidden=frozenset({4}))
    assert (rows(found), found.last, found.after) == ([0, 1, 2], False, (1_002, 1 << 16 | 2))
    assert rows(page(disk, limit=100, after=found.after, hidden=frozenset({4}))) == [3, 4, 5, 6, 7, 8, 9]


def test_few_long_payloads_are_on_one_page_though_only_their_keys_are_shown(disk: Disk) -> None:
    """The store reads a whole chunk for each key."""
    uploaded(disk, 9)
    found = page(disk, begin=True, bytes_max=CHUNK_BYTES)
    assert (rows(found), found.last) == ([0, 1, 2, 3], False)
    assert found.body == b"\x03key" * 4


def test_a_page_that_ends_before_a_class_that_was_read_is_followed_by_what_it_leaves_out(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for classes ended, too. Going on behind them would pass by the rows that had no room."""
    monkeypatch.setattr(browsing, "_CLASSES", 3)
    payload = b"a" * 600
    disk.store.commit([AppendLog(UID, [insert(1, [payload] * 5)])])
    put = entries(*((1, row, 1_000) for row in range(5)), payload=payload, block_rows=5)
    of = np.arange(5, dtype=np.uint8).reshape(-1, 1)
    disk.store.commit([SaveCheckpoint(UID, 1, 0, put=put, put_of=of)])
    asked: dict[str, Any] = {"payloads": True, "bytes_max": 1_000, "class_bytes": 1}
    found = page(disk, begin=True, **asked)
    shown = rows(found)
    while not found.last:
        found = page(disk, after=found.after, of=found.of, **asked)
        shown += rows(found)
    assert shown == [0, 1, 2, 3, 4]


# ---------------------------------------------------------------- the dead


def test_pages_begin_at_the_low_water_mark(disk: Disk) -> None:
    """Below it lie only deleted rows, which cost as much to pass by as others. Here one is left, to tell."""
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"] * 2)])])
    put = entries((1, 0, 1_000), (1, 1, 2_000), block_rows=2)
    disk.store.commit([SaveCheckpoint(UID, 1, 1_500, put=put)])
    assert rows(page(disk, begin=True)) == [1]


def dead(disk: Disk, count: int) -> None:
    """So many messages, of which the last one died first; each has a reason."""
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"] * count)])])
    put = widened(entries(*((1, row, 1_000) for row in range(count)), block_rows=count), FULL.itemsize)
    put["state"], put["died_at"] = State.DEAD, DIED_MS - 10 * np.arange(count)
    reasons: list[tuple[int, str | None]] = [(1 << 16 | row, f"reason {row}") for row in range(count)]
    disk.store.commit([SaveCheckpoint(UID, 1, 0, put=put, remarks=reasons)])


def test_pages_of_the_dead_follow_each_other_in_the_order_of_their_deaths(disk: Disk) -> None:
    dead(disk, 5)
    found = page(disk, begin=True, limit=2, dead=True)
    assert (rows(found), found.reasons, found.last) == ([4, 3], ["reason 4", "reason 3"], False)
    assert found.after == (DIED_MS - 30, 1 << 16 | 3)
    found = page(disk, limit=2, dead=True, after=found.after)
    assert (rows(found), found.last) == ([2, 1], False)
    found = page(disk, limit=1, dead=True, after=found.after)
    assert (rows(found), found.last) == ([0], True)


def test_a_range_of_deaths_begins_with_its_start_and_leaves_out_its_end(disk: Disk) -> None:
    dead(disk, 5)
    found = page(disk, begin=True, dead=True, from_ms=DIED_MS - 30, until_ms=DIED_MS)
    assert (rows(found), found.last) == ([3, 2, 1], True)


def test_a_page_of_the_dead_that_its_payloads_end_tells_the_reasons_of_those_on_it(disk: Disk) -> None:
    dead(disk, 5)
    found = page(disk, begin=True, dead=True, payloads=True, bytes_max=4)
    assert (rows(found), found.reasons) == ([4, 3], ["reason 4", "reason 3"])
    assert rows(page(disk, dead=True, after=found.after)) == [2, 1, 0]


# ---------------------------------------------------------------- what cannot be read, and what is closed


def test_a_key_whose_chunk_is_gone_is_counted(disk: Disk) -> None:
    uploaded(disk, 2)
    disk.payload.write([(key, None) for key in disk.payload.keys(b"\0\0\x09u", b"\0\0\x09v")][:1], sync=True)
    found = page(disk, begin=True)
    assert (found.body, found.body_size.tolist(), found.unreadable) == (b"\x03key", [0, 4], 1)


def chunk(disk: Disk, pages: int) -> bytes | None:
    found = disk.store.read(ReadChunk(1, UID, 1, 0, pages))
    assert isinstance(found, ChunkRead)
    return found.data


def test_who_browses_reads_long_payloads_as_they_were_when_the_browsing_began(disk: Disk) -> None:
    put = uploaded(disk, 1)
    page(disk, 1, begin=True)
    gone = np.array([[1_000, 1 << 16, 1_000]], np.uint64)
    disk.store.commit([SaveCheckpoint(UID, 1, 0, unwait=gone)])
    disk.timeline.write([(b"\0\0\x09v" + (1).to_bytes(8, "big"), None)], sync=True)
    disk.store.commit([DropUpload(UID, 1)])
    page(disk, 2, begin=True)
    assert (len(put), chunk(disk, 2)) == (1, None)
    assert len(chunk(disk, 1) or b"") == CHUNK_BYTES


def test_what_is_closed_has_no_more_pages_and_chunks(disk: Disk) -> None:
    uploaded(disk, 1)
    assert len(page(disk, begin=True).entries) == 1
    assert chunk(disk, 1) is not None
    assert disk.store.read(ClosePages(1, UID, 1)) is None
    assert disk.store.read(ReadPage(1, UID, 1, False, 0, 0, (0, 0), 9, 9, False)) is None
    assert chunk(disk, 1) is None

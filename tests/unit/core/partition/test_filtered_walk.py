"""A way through the index for a key prefix: what no entry says is read from the disk, some at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from dueq.core.partition.filtered_walk import FilteredWalk
from dueq.core.ports.entry import FLAG_KEYED, FLAG_UPLOAD, FULL, Entries, State
from dueq.core.ports.persistence import (
    ChunkRead,
    IndexScanned,
    PayloadsRead,
    ReadChunk,
    ReadPayloads,
    ScanIndex,
)
from dueq.core.state.job_table import JobTable
from dueq.core.state.matching import RowFilter
from dueq.core.turn.context import Context
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq.limits import BROWSE_BYTES_MAX

UID = 1
BEFORE = 50
NOW = Now(3_000, 3_000)


def stored(key: str) -> bytes:
    """A payload with its key."""
    return bytes([len(key)]) + key.encode() + b"payload"


class Search:
    """A search for waiting messages whose keys begin with `order-`; the disk answers when the test says so."""

    def __init__(self, low_water: int = 0) -> None:
        self.ctx = Context(CoreSettings("b1", 11, "s1", "cluster", "tcp://b1"))
        order = SimpleNamespace(class_bytes=0)
        timeline = SimpleNamespace(jobs=JobTable(), groups=None, low_water=low_water, order=order)
        partition: Any = SimpleNamespace(uid=UID, timeline=timeline)
        self.walk = FilteredWalk(self.ctx, partition, RowFilter(State.WAITING, key_prefix=b"order-"), BEFORE)
        self.found: list[list[int]] = []
        self.walk.read(lambda rows, now: self.found.append(rows["row"].tolist()))

    def asked(self) -> Any:
        """Take the one read that is under way."""
        [read] = [request for effect in self.ctx.take() if (request := getattr(effect, "request", None))]
        return read

    def page(self, rows: Entries) -> None:
        read = self.asked()
        assert isinstance(read, ScanIndex)
        self.ctx.read_done(read.token, IndexScanned(read.token, UID, rows, exhausted=True), NOW)

    def payloads(self, *payloads: bytes | None) -> list[int]:
        """Answer a read of payloads; returns the rows that it was about."""
        read = self.asked()
        assert isinstance(read, ReadPayloads)
        self.ctx.read_done(read.token, PayloadsRead(read.token, UID, read.entries, list(payloads)), NOW)
        rows: list[int] = read.entries["row"].tolist()
        return rows

    def chunk(self, data: bytes | None) -> tuple[int, int]:
        """Answer a read of a chunk; returns the upload and the chunk."""
        read = self.asked()
        assert isinstance(read, ReadChunk)
        self.ctx.read_done(read.token, ChunkRead(read.token, UID, read.upload, read.chunk, data), NOW)
        return read.upload, read.chunk


def keyed(count: int, size: int = 20) -> Entries:
    """Waiting messages with keys."""
    rows = np.zeros(count, FULL)
    rows["state"], rows["row"], rows["sequence"] = State.WAITING, np.arange(count), 1
    rows["flags"], rows["size"] = FLAG_KEYED, size
    return rows


def test_those_whose_keys_begin_so_are_found_and_what_cannot_be_read_is_none_of_them() -> None:
    search, rows = Search(), keyed(7)
    rows["flags"][0] = 0
    rows["state"][1] = State.DEAD
    rows["sequence"][2] = BEFORE
    search.page(rows)
    assert search.payloads(stored("order-7"), None, stored("order"), stored("my-order-7")) == [3, 4, 5, 6]
    assert (search.found, search.walk.looked, search.walk.ended) == ([[3]], 7, True)


def test_it_begins_at_the_low_water_mark() -> None:
    """Below it lie only deleted rows, which cost as much to pass by as others."""
    read = Search(low_water=700).asked()
    assert (read.after_wait_at, read.after_key) == (700, -1)


def test_where_no_message_has_a_key_nothing_is_read() -> None:
    search, rows = Search(), keyed(2)
    rows["flags"] = 0
    search.page(rows)
    assert search.found == [[]]


def test_of_an_upload_its_first_chunk_tells_the_key() -> None:
    search, rows = Search(), keyed(4)
    rows["flags"][1:3] |= FLAG_UPLOAD
    rows["place"][1:3] = 71, 72
    search.page(rows)
    assert search.payloads(stored("order-1")) == [0]
    assert search.chunk(stored("order-2")) == (71, 0)
    assert search.chunk(None) == (72, 0)
    assert search.found == []
    assert search.payloads(stored("order-4")) == [3]
    assert search.found == [[0, 1, 3]]


def test_about_a_mebibyte_is_read_at_a_time_and_a_longer_payload_alone() -> None:
    search, rows = Search(), keyed(4, BROWSE_BYTES_MAX // 2)
    rows["size"][3] = BROWSE_BYTES_MAX + 1
    search.page(rows)
    assert search.payloads(stored("order-1"), stored("other")) == [0, 1]
    assert search.payloads(stored("order-3")) == [2]
    assert search.payloads(stored("order-4")) == [3]
    assert search.found == [[0, 2, 3]]

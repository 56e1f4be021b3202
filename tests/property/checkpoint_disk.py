"""A store of the checkpoints of one partition, made of dictionaries, for tests of the timeline."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from dueq.core.ports.entry import NO_ENTRIES, Entries, State, joined, keys_of
from dueq.core.ports.names import Lasting, Name, expiry_key, unpack_name
from dueq.core.ports.persistence import RecoveredPartition, SaveCheckpoint
from dueq.core.ports.tables import TableRow

UID = 7


class Disk:
    """A store of checkpoints made of dictionaries, which complains about rows that should be there."""

    def __init__(self) -> None:
        self.index: dict[tuple[int, int], Entries] = {}
        self.moved: dict[int, int] = {}
        self.leased: dict[int, Entries] = {}
        self.dead: dict[int, Entries] = {}
        self.remarks: dict[int, str] = {}
        self.names: dict[bytes, bytes] = {}
        self.remembered: dict[bytes, bytes] = {}
        self.tables: dict[bytes, dict[bytes, bytes]] = {}
        self.applied = self.low_water = 0
        self.summary = b""
        self.finished: list[int] = []

    def save(self, save: SaveCheckpoint) -> None:
        for wait_at, key, first in save.unwait.tolist():
            del self.index[wait_at, key]
            if wait_at != first:
                del self.moved[key]
        for key in save.unlease.tolist():
            del self.leased[key]
        for died_at, key in save.undie.tolist():
            assert int(self.dead.pop(key)["died_at"][0]) == died_at
        for key, text in save.remarks:
            if text is None:
                self.remarks.pop(key, None)
            else:
                self.remarks[key] = text
        for at, key in enumerate(keys_of(save.put).tolist()):
            row = save.put[at : at + 1].copy()
            if row["state"][0] == State.LEASED:
                self.leased[key] = row
                continue
            if row["state"][0] == State.DEAD:
                self.dead[key] = row
                continue
            wait_at = int(row["wait_at"][0])
            self.index[wait_at, key] = row
            if wait_at != row["first"][0]:
                self.moved[key] = wait_at
        for rows, changed in (
            (self.names, [*save.names, *save.borne.rows()]),
            (self.remembered, save.remembered),
        ):
            for digest, value in changed:
                if value is None:
                    rows.pop(digest, None)
                else:
                    rows[digest] = value
        expiry = {digest: row for digest, row in map(_expiry_of, self.names.items()) if row}
        assert set(expiry.values()) == self.remembered.keys()
        for tag, changed in save.tables.items():
            table = self.tables.setdefault(tag, {})
            for row_key, value in changed:
                if value is not None:
                    table[row_key] = value
                elif tag == b"f":
                    table.pop(row_key, None)  # who comes and goes between two checkpoints leaves nothing
                else:
                    del table[row_key]
        self.applied, self.low_water, self.summary = save.applied, save.low_water, save.summary
        self.finished += keys_of(save.finished).tolist()
        assert all(wait_at >= self.low_water for wait_at, _ in self.index)
        keys = [key for _, key in self.index]
        assert len(keys) == len(set(keys))
        assert not self.leased.keys() & set(keys)
        assert not self.dead.keys() & (set(keys) | self.leased.keys())
        assert all((wait_at, key) in self.index for key, wait_at in self.moved.items())

    def read(self, asked: tuple[Any, Any, Any]) -> Entries:
        found = []
        for first, sequence, row in zip(*(column.tolist() for column in asked), strict=True):
            key = sequence << 16 | row
            entry = self.index.get((self.moved.get(key, first), key), self.dead.get(key))
            if entry is not None and entry["first"][0] == first:
                found.append(entry)
        return joined(found[::-1]) if found else NO_ENTRIES

    def read_names(self, hashes: list[bytes]) -> tuple[dict[bytes, Name], Entries]:
        found = {digest: unpack_name(self.names[digest]) for digest in hashes if digest in self.names}
        owners = [name for name in found.values() if not isinstance(name, Lasting)]
        ids = np.array([(first, key >> 16, key & 0xFFFF) for first, key in owners], np.uint64).reshape(-1, 3)
        return found, self.read((ids[:, 0], ids[:, 1], ids[:, 2]))

    def expired(self, before: int, limit: int) -> tuple[list[tuple[int, bytes]], int | None]:
        rows = [(int.from_bytes(row[:8], "big"), row[8:]) for row in sorted(self.remembered)]
        found = [row for row in rows[:limit] if row[0] < before]
        return found, rows[len(found)][0] if len(rows) > len(found) else None

    def scan(self, wait_at: int, key: int, limit: int, hidden: frozenset[int]) -> tuple[Any, ...]:
        """The entries found, whether they are all, the last position looked at, and the jobs that were left out."""
        after = sorted(position for position in self.index if position > (wait_at, key))
        seen = [(position, self.index[position]) for position in after[:limit]]
        rows = [row for _, row in seen if row["job"][0] not in hidden]
        left_out = {int(row["job"][0]) for _, row in seen} & hidden
        found = joined(rows) if rows else NO_ENTRIES
        return found, len(after) <= limit, seen[-1][0] if seen else None, frozenset(left_out)

    def recover(self) -> RecoveredPartition:
        tables = {tag: [TableRow(*row) for row in table.items()] for tag, table in self.tables.items()}
        for rows in tables.values():
            random.Random(self.applied).shuffle(rows)
        leased = joined(list(self.leased.values())) if self.leased else NO_ENTRIES
        return RecoveredPartition(
            UID, "topic", 1, 0, self.applied, self.applied + 1, self.applied, [(0, 0)], [],
            self.low_water, leased, tables, self.summary, [],
        )  # fmt: skip


def _expiry_of(named: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    name = unpack_name(named[1])
    return named[0], expiry_key(name.until, named[0]) if isinstance(name, Lasting) else b""

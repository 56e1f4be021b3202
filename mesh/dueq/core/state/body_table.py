"""The shared bodies of one partition: bytes that many messages have as their payload, stored once.

    (unknown) ── BODY with the bytes ──► kept while a message names it, or its grace lasts ──► forgotten

A body's name is the SHA-256 of its bytes, so that any client can name it. Its number in this partition is the sequence
of the record that brought it. Entries carry the number, and the store finds the bytes by it. The grace is a length of
the partition's age: it begins anew when the body is put, kept or named by new messages. Everything happens inside
`apply`: a function of the log.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from struct import Struct
from typing import Final

import numpy as np

from dueq.core.ports.entry import Entries, is_full
from dueq.core.ports.tables import TableRow
from dueq.core.state.applied import Applied
from dueq.core.state.side_table import Messages
from dueq.errors import UnknownVersion, invariant
from dueq.limits import BODY_GRACE_MS
from dueq_codecs.records import U8, Outcome, Record

_ROW: Final = Struct("<BIIQQ32s")
_ROW_VERSION: Final = 1
_NUMBER_BYTES: Final = 8


@dataclass(slots=True)
class SharedBody:
    """One shared body.

    Attributes:
        name: SHA-256 of the bytes.
        number: sequence of the record that brought it.
        size: bytes.
        crc: CRC-32 of them.
        messages: how many name it, leased and dead ones and recurrences included.
        until_ms: age of the partition at which its grace ends.
        saved: the disk has its row.
    """

    name: bytes
    number: int
    size: int
    crc: int
    messages: int = 0
    until_ms: int = 0
    saved: bool = False

    def pack(self) -> bytes:
        """Return the body as a row."""
        return _ROW.pack(_ROW_VERSION, self.size, self.crc, self.messages, self.until_ms, self.name)


def _unpack(key: bytes, value: bytes) -> SharedBody:
    if value[0] != _ROW_VERSION:
        raise UnknownVersion(f"a shared body of version {value[0]}; this build knows {_ROW_VERSION}")
    _, size, crc, messages, until_ms, name = _ROW.unpack(value)
    return SharedBody(name, int.from_bytes(key, "big"), size, crc, messages, until_ms, saved=True)


class BodyTable:
    """All shared bodies that one partition keeps.

    Attributes:
        by_name: every body.
        by_number: the same.
        garbage: (number, size) of those whose bytes are to be deleted; to be taken by whoever can.
    """

    def __init__(self) -> None:
        self.by_name: dict[bytes, SharedBody] = {}
        self.by_number: dict[int, SharedBody] = {}
        self.garbage: list[tuple[int, int]] = []
        self._idle: dict[int, SharedBody] = {}
        self._changed: dict[int, None] = {}

    def recover(self, rows: list[TableRow]) -> None:
        """Begin with what the last checkpoint left.

        Raises:
            UnknownVersion: a newer build wrote a row.
        """
        bodies = [_unpack(key, value) for key, value in rows if value is not None]
        for body in sorted(bodies, key=lambda body: body.number):
            self._add(body)

    def _add(self, body: SharedBody) -> None:
        self.by_name[body.name] = self.by_number[body.number] = body
        if not body.messages:
            self._idle[body.number] = body

    @property
    def idle_until_ms(self) -> int | None:
        """The age of the partition at which the first grace ends of a body that no message names; None: none does."""
        return min((body.until_ms for body in self._idle.values()), default=None)

    # ------------------------------------------------------------ records

    def apply(self, record: Record, age_ms: int, messages: Messages, applied: Applied) -> U8:
        """Apply a BODY: bring a body, or keep one that is known."""
        body = self.by_name.get(record.shared)
        brings = len(record.size) > 0
        if brings and body is not None:
            self.garbage.append((record.sequence, record.shared_size))
        if body is None:
            if not brings:
                return np.array([Outcome.NOT_FOUND], np.uint8)
            body = SharedBody(record.shared, record.sequence, record.shared_size, int(record.crc[0]))
            self._add(body)
        grace_ms = int(record.amount_ms[0]) if len(record.amount_ms) else BODY_GRACE_MS
        body.until_ms = age_ms + min(grace_ms, BODY_GRACE_MS)
        self._changed[body.number] = None
        return np.zeros(1, np.uint8)

    def refuses(self, record: Record) -> bool:
        """Whether a record names a body that is not kept here."""
        body = self.by_name.get(record.shared)
        return body is None or body.size != record.shared_size

    def name(self, record: Record, age_ms: int) -> int:
        """Note that a record takes effect that names a body, and was not refused; returns the body's number."""
        body = self.by_name[record.shared]
        body.until_ms = max(body.until_ms, age_ms + BODY_GRACE_MS)
        self._changed[body.number] = None
        return body.number

    def repeated(self, record: Record) -> None:
        """A BODY is not applied, being a repetition: what it brings is garbage."""
        if len(record.size):
            self.garbage.append((record.sequence, record.shared_size))

    def expire(self, age_ms: int, stamp: int) -> None:
        """Forget bodies that no message names and whose grace is over."""
        if not self._idle:
            return
        gone = [body for body in self._idle.values() if body.until_ms <= age_ms]
        for body in gone:
            del self.by_name[body.name], self.by_number[body.number], self._idle[body.number]
            self.garbage.append((body.number, body.size))
            if body.saved:
                self._changed[body.number] = None
            else:
                self._changed.pop(body.number, None)

    # ------------------------------------------------------------ messages

    def count(self, rows: Entries, waiting: int, leased: int, dead: int = 0) -> None:
        """Count messages that begin (1) or stop (-1) to wait, to be leased or to be dead."""
        if not is_full(rows) or not self.by_number:
            return
        column = rows["body"]
        if not np.count_nonzero(column):
            return
        for number, count in Counter(column.tolist()).items():
            if not number:
                continue
            self._add_messages(self.by_number[number], (waiting + leased + dead) * count)

    def hold(self, name: bytes, count: int) -> None:
        """Count recurrences that begin (1) or stop (-1) to have the body of this name."""
        self._add_messages(self.by_name[name], count)

    def _add_messages(self, body: SharedBody, count: int) -> None:
        body.messages += count
        invariant(body.messages >= 0, "a body has fewer messages than none", number=body.number)
        self._changed[body.number] = None
        if body.messages:
            self._idle.pop(body.number, None)
        else:
            self._idle[body.number] = body

    # ------------------------------------------------------------ checkpoints

    def changed_rows(self) -> list[TableRow]:
        """Return the rows that changed since the last call; from now on they count as being on disk."""
        rows = []
        for number in self._changed:
            body = self.by_number.get(number)
            rows.append(
                TableRow(number.to_bytes(_NUMBER_BYTES, "big"), body.pack() if body is not None else None)
            )
            if body is not None:
                body.saved = True
        self._changed.clear()
        return rows

    def export(self) -> object:
        """Return everything known: each body's packed row, by number."""
        return sorted((body.number, body.pack().hex()) for body in self.by_number.values())

"""Small records, row by row: the changes that `live` makes to many rows at once, for up to four rows.

A numpy call costs as much for one row as for fifty, and a record of one row takes some sixty of them. Here a row is
unpacked into a list, changed as Python changes things, and packed again. At a few thousand messages a second most
records have one row, so this is what a broker mostly does; the rules are those of `live`, and a test holds the two
together: the same histories, each applied by both.

Unusual cases (jobs, groups, triggered messages, recurrences, unique keys, dead messages, uploads, several payload
blocks, a message named twice, or one that is not in memory) are left to `live`: `apply` says so before it has changed
anything.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from struct import Struct
from typing import Any, Final

import numpy as np

from dueq.core.ports.entry import (
    ENTRY,
    FLAG_DETACHED,
    FLAG_FAR,
    FLAG_TRIGGERED,
    FULL,
    WIDE,
    Entries,
    State,
    meta_flags,
    of_width,
)
from dueq.core.state.applied import Applied
from dueq.core.state.live import ATTEMPT_MAX, LEASE_MAX_U32, LiveMessages
from dueq.core.state.table import FEW, OnDisk, Table
from dueq.core.state.window import HotWindow
from dueq.limits import BLOCK_BYTES, DELAY_MS_MAX
from dueq_codecs.records import LEVEL_OF_KINDS, NO_U8, U8, Outcome, Record, RecordKind

_ROW: Final = Struct("<QQQQQQ16sIIIHHHBBI")
(
    _WAIT_AT, _FIRST, _DUE, _SEQUENCE, _TOKEN, _PLACE, _CONSUMER, _SIZE, _CRC, _LEASE_MS, _NUMBER, _ATTEMPT,
    _BLOCK_ROWS, _STATE, _FLAGS, _JOB,
) = range(16)  # fmt: skip
_BYTES: Final = _ROW.size
assert ENTRY.itemsize == _BYTES
_NOBODY: Final = bytes(16)
_STATE_AT: Final = 82
assert ENTRY.fields is not None
assert ENTRY.fields["state"][1] == _STATE_AT
_GROUP: Final = Struct("<I")
_GROUP_AT: Final = 92
_VERSION: Final = Struct("<Q")
_VERSION_AT: Final = 96
assert WIDE.fields is not None
assert WIDE.fields["group"][1] == _GROUP_AT
assert WIDE.fields["version"][1] == _VERSION_AT
_RECURRENCE: Final = Struct("<Q")
_RECURRENCE_AT: Final = 104
assert WIDE.fields["recurrence"][1] == _RECURRENCE_AT
_ENDS: Final = Struct("<Q8xQQ")
_ENDS_AT: Final = 136
assert FULL.fields is not None
assert FULL.fields["body"][1] == _ENDS_AT
assert FULL.fields["remark"][1] == _ENDS_AT + 16
assert FULL.fields["attempts_max"][1] == _ENDS_AT + 24
_UNIQUE_KEY: Final = Struct("<QQ")
_UNIQUE_KEY_AT: Final = 112
assert FULL.fields["key_high"][1] == _UNIQUE_KEY_AT
assert FULL.fields["key_low"][1] == _UNIQUE_KEY_AT + 8
_FINISHING: Final = (RecordKind.ACK, RecordKind.CANCEL)
_GIVING_BACK: Final = (RecordKind.NACK, RecordKind.EXPIRE, RecordKind.RELEASE)
_DONE: Final = tuple(np.zeros(rows, np.uint8) for rows in range(FEW + 1))
for _outcomes in _DONE:
    _outcomes.setflags(write=False)

Row = list[Any]
"""The fields of one entry, in the order of `ENTRY`; the consumer's two halves are one."""


class SmallRecords:
    """Applies small records to the live messages of one partition.

    Args:
        live: the messages, which apply all others.
        window: theirs.
        rows_max: of a small record; 0: there are none.
    """

    def __init__(self, live: LiveMessages, window: HotWindow, rows_max: int) -> None:
        self._live, self._window, self._rows_max = live, window, rows_max
        self._table: Table = live.table
        self._forecast = live.forecast
        self._settings = live.settings
        self._seen: Entries | None = None  # the table's rows of which we have the views
        self._change_of: dict[RecordKind, Callable[[Record, list[int], list[Row]], list[int]]] = {
            RecordKind.LEASE: self._lease,
            RecordKind.MOVE: self._withdraw,
            RecordKind.CANCEL: self._withdraw,
            RecordKind.ACK: self._settle,
            RecordKind.NACK: self._settle,
            RecordKind.EXTEND: self._settle,
            RecordKind.RELEASE: self._settle,
            RecordKind.EXPIRE: self._settle,
        }
        # Of the record that is being applied: packed rows that began to wait, were leased, lost their lease.
        self._waiting: list[bytes] = []
        self._leased: list[bytes] = []
        self._ended: list[bytes] = []

    def apply(self, record: Record, applied: Applied) -> U8 | None:
        """Apply a record, all of whose rows take effect; returns an outcome per row where its kind has any.

        None, and nothing was changed: it is not small, or out of the ordinary.
        """
        count = record.rows
        if not 0 < count <= self._rows_max:
            return None
        if self._seen is not self._table.rows:
            self._look()
        if record.kind == RecordKind.INSERT:
            return self._insert(record, applied)
        change = self._change_of.get(record.kind)
        if change is None or len(record.first) != count:
            return None
        slots = self._table.find_few(record.target_sequence, record.target_row)
        if record.kind == RecordKind.LEASE and len(record.token):
            return None  # it renews
        if record.kind == RecordKind.MOVE and record.version >= LEVEL_OF_KINDS and self._width == _BYTES:
            return None  # which makes the table wide
        if len(record.expected):
            return None
        rows: list[Row] = [list(_ROW.unpack_from(self._cells, slot * self._width)) for slot in slots]
        if (
            not rows
            or any(row[_JOB] or row[_STATE] == State.DEAD or row[_FLAGS] & FLAG_TRIGGERED for row in rows)
            or self._are_counted(slots)
        ):
            return None
        if record.kind in _GIVING_BACK and self._is_special(record, rows):
            return None
        if record.kind in _FINISHING and self._width == FULL.itemsize and self._have_keys(slots):
            return None
        outcomes = change(record, slots, rows)
        if self._waiting:
            applied.waiting, self._waiting = _entries(self._waiting), []
        if self._leased:
            applied.leased, self._leased = _entries(self._leased), []
        if self._ended:
            applied.ended, self._ended = _entries(self._ended), []
        if record.kind == RecordKind.LEASE:
            if outcomes:
                applied.refused = np.array(outcomes, np.uint64)
            return NO_U8
        return np.array(outcomes, np.uint8) if any(outcomes) else _DONE[count]

    def _is_special(self, record: Record, rows: list[Row]) -> bool:
        """Whether messages are given back with more than a NACK's delay, or may have had their last attempt."""
        if (
            len(record.fate)
            or len(record.reason)
            or record.document
            or (record.kind != RecordKind.NACK and len(record.amount_ms))
        ):
            return True
        most = int(self._settings.current.max_attempts)
        return 0 < most <= max(int(row[_ATTEMPT]) for row in rows)

    def _are_counted(self, slots: list[int]) -> bool:
        """Whether a message is counted by its group, recurrence or shared body, or has a limit of its own."""
        if self._width == _BYTES:
            return False
        if self._width == FULL.itemsize and any(
            any(_ENDS.unpack_from(self._cells, slot * self._width + _ENDS_AT)) for slot in slots
        ):
            return True
        starts = [slot * self._width for slot in slots]
        return any(
            _GROUP.unpack_from(self._cells, at + _GROUP_AT)[0]
            or _RECURRENCE.unpack_from(self._cells, at + _RECURRENCE_AT)[0]
            for at in starts
        )

    def _have_keys(self, slots: list[int]) -> bool:
        """Whether a message has a unique key, which goes with it."""
        return any(
            any(_UNIQUE_KEY.unpack_from(self._cells, slot * self._width + _UNIQUE_KEY_AT)) for slot in slots
        )

    def _look(self) -> None:
        """Look at the table's columns anew: it has grown."""
        table = self._table
        self._seen = table.rows
        self._cells = table.rows.view(np.uint8).data
        self._width = table.rows.itemsize
        self._disk, self._pins = table.disk.data, table.pins.data
        self._dirty = table.dirty.data

    # ------------------------------------------------------------ kinds

    def _insert(self, record: Record, applied: Applied) -> U8 | None:
        sizes = record.size.tolist()
        count = len(sizes)
        if (
            record.job
            or len(record.upload)
            or len(record.rank)
            or len(record.group)
            or len(record.expires)
            or len(record.attempts_max)
            or record.shared
            or len(record.key_high)
            or len(record.once_high)
            or (count > 1 and sum(sizes) > BLOCK_BYTES)
        ):
            return None
        table, forecast, stamp = self._table, self._forecast, record.stamp
        key = record.sequence << 16
        if table.placeholders and any(key | number in table.slot_of for number in range(count)):
            return None  # named by a later record of the log already
        keyed = meta_flags(record.keyed)
        slots = table.take_slots(count)
        if self._seen is not table.rows:
            self._look()
        place = 0
        columns = zip(slots, record.due.tolist(), sizes, record.crc.tolist(), strict=True)
        for number, (slot, due, size, crc) in enumerate(columns):
            first = max(due, stamp, 0)
            flags = keyed | forecast.begin_one(first, stamp)
            if self._width > _BYTES:
                end = (slot + 1) * self._width
                self._cells[end - self._width + _BYTES : end] = bytes(self._width - _BYTES)
            self._put(slot, [
                first, first, due, record.sequence, 0, place, _NOBODY, size, crc, 0, number, 0, count,
                State.WAITING, flags, 0,
            ])  # fmt: skip
            self._disk[slot] = OnDisk.NOTHING
            table.slot_of[key | number] = slot
            place += size
            self._hot(slot, first, key | number)
        self._live.scheduled += count
        if self._waiting:
            applied.waiting, self._waiting = _entries(self._waiting), []
        return NO_U8

    def _lease(self, record: Record, slots: list[int], rows: list[Row]) -> list[int]:
        """LEASE; returns the keys of what could not be leased."""
        refused: list[int] = []
        lengths, detached = record.lease_ms.tolist(), record.detached.tolist()
        columns = zip(slots, rows, record.first.tolist(), record.consumer.tolist(), strict=True)
        for slot, row, first, consumer in columns:
            if row[_STATE] != State.WAITING or row[_FIRST] != first:
                refused.append(_key(row))
                continue
            self._stop_waiting(row)
            row[_STATE], row[_TOKEN] = State.LEASED, record.sequence
            row[_ATTEMPT] = min(row[_ATTEMPT] + 1, ATTEMPT_MAX)
            row[_CONSUMER] = record.consumers[consumer]
            row[_LEASE_MS] = min(lengths[consumer], LEASE_MAX_U32)
            if detached and detached[consumer]:
                row[_FLAGS] |= FLAG_DETACHED
            self._put(slot, row)
            self._live.leased += 1
            self._leased.append(self._packed(slot))
        return refused

    def _settle(self, record: Record, slots: list[int], rows: list[Row]) -> list[int]:
        """ACK, NACK, EXTEND, RELEASE or EXPIRE: they need the present lease."""
        kind = record.kind
        outcomes: list[int] = []
        columns = zip(slots, rows, record.first.tolist(), record.token.tolist(), strict=True)
        for at, (slot, row, first, token) in enumerate(columns):
            if row[_STATE] != State.LEASED or row[_TOKEN] != token or row[_FIRST] != first:
                outcomes.append(Outcome.STALE)
                continue
            outcomes.append(Outcome.DONE)
            if kind == RecordKind.EXTEND:
                row[_LEASE_MS] = min(int(record.amount_ms[at]), LEASE_MAX_U32)
                self._put(slot, row)
                self._leased.append(self._packed(slot))
                continue
            self._end_lease(slot)
            if kind == RecordKind.ACK:
                self._finish(slot, row)
                continue
            not_before = row[_DUE]
            if kind == RecordKind.NACK:
                # Never before due, even if this leader's clock is behind that of the leader that pushed it.
                delay = min(int(record.amount_ms[at]), DELAY_MS_MAX)
                not_before = max(not_before, delay + max(record.stamp, 0))
            elif kind == RecordKind.RELEASE:
                row[_ATTEMPT] -= row[_ATTEMPT] > 0
            self._wait(record, slot, row, not_before)
        return outcomes

    def _withdraw(self, record: Record, slots: list[int], rows: list[Row]) -> list[int]:
        """MOVE or CANCEL."""
        outcomes: list[int] = []
        dues = record.due.tolist() or repeat(0, len(rows))
        columns = zip(slots, rows, record.first.tolist(), record.token.tolist(), dues, strict=True)
        for slot, row, first, token, due in columns:
            if row[_STATE] == State.ABSENT or row[_FIRST] != first:
                outcomes.append(Outcome.NOT_FOUND)
                continue
            if row[_STATE] == State.WAITING:
                self._stop_waiting(row)
            elif token and row[_TOKEN] == token:
                self._end_lease(slot)
                row[_ATTEMPT] -= row[_ATTEMPT] > 0
            else:
                outcomes.append(Outcome.LEASED)
                continue
            outcomes.append(Outcome.DONE)
            if record.kind == RecordKind.CANCEL:
                self._finish(slot, row)
            else:
                row[_DUE] = due
                if record.version >= LEVEL_OF_KINDS:
                    _VERSION.pack_into(self._cells, slot * self._width + _VERSION_AT, record.sequence)
                self._wait(record, slot, row, row[_DUE])
        return outcomes

    # ------------------------------------------------------------ steps

    def _wait(self, record: Record, slot: int, row: Row, not_before: int) -> None:
        """Let a row wait from now on, at max(not_before, stamp)."""
        row[_WAIT_AT] = wait_at = max(not_before, record.stamp, 0)
        row[_STATE], row[_TOKEN], row[_CONSUMER], row[_LEASE_MS] = State.WAITING, 0, _NOBODY, 0
        row[_FLAGS] = row[_FLAGS] & ~(FLAG_FAR | FLAG_DETACHED) | self._forecast.begin_one(
            wait_at, record.stamp
        )
        self._put(slot, row)
        self._live.scheduled += 1
        self._hot(slot, wait_at, _key(row))

    def _hot(self, slot: int, wait_at: int, key: int) -> None:
        """Count a row that begins to wait, if it is to be delivered from the window."""
        if self._window.holds(wait_at, key):
            self._window.count += 1
            self._waiting.append(self._packed(slot))

    def _stop_waiting(self, row: Row) -> None:
        self._forecast.end_one(row[_WAIT_AT], row[_FLAGS])
        self._window.count -= self._window.holds(row[_WAIT_AT], _key(row))
        self._live.scheduled -= 1

    def _end_lease(self, slot: int) -> None:
        self._live.leased -= 1
        self._ended.append(self._packed(slot))

    def _finish(self, slot: int, row: Row) -> None:
        """Let a message go: one that the disk has becomes a tombstone, another is forgotten at once."""
        self._live.note_finished(_entries([_ROW.pack(*row)]))
        self._cells[slot * self._width + _STATE_AT] = State.ABSENT
        if self._disk[slot] != OnDisk.NOTHING:
            self._mark(slot)
            return
        # A row that the disk never had needs no delete; it stays only if a record further up names it.
        self._table.dirty_count -= self._dirty[slot]
        self._dirty[slot] = False
        if not self._pins[slot]:
            self._disk[slot] = OnDisk.FREE
            self._table.give_slot(slot, _key(row))

    def _put(self, slot: int, row: Row) -> None:
        _ROW.pack_into(self._cells, slot * self._width, *row)
        self._mark(slot)

    def _mark(self, slot: int) -> None:
        """Note that a row differs from the disk."""
        self._table.dirty_count += not self._dirty[slot]
        self._dirty[slot] = True

    def _packed(self, slot: int) -> bytes:
        return bytes(self._cells[slot * self._width : (slot + 1) * self._width])


def _key(row: Row) -> int:
    key: int = row[_SEQUENCE] << 16 | row[_NUMBER]
    return key


def _entries(rows: list[bytes]) -> Entries:
    """Return rows of one width as an array."""
    return np.frombuffer(bytearray().join(rows), of_width(len(rows[0])))

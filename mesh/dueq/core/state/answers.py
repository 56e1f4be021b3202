"""The answers of past requests, packed: an object for each would weigh five times as much.

Each answer is 53 bytes in one buffer, at a *slot* that stays its own until the answer is removed. Slots are linked in
the order in which the answers were given. Outcomes that differ from row to row lie beside the buffer.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

import numpy as np

from dueq.core.state.applied import NO_PRESENT, PRESENT, Present
from dueq_codecs.records import NO_U8, NO_U32, U8, U32

_SLOT: Final = struct.Struct("<QQQQQIHHHBBB")
"""number, digest, sequence, stamp, age, client, position, row, rows, kind, first outcome, saved."""
_NUMBER: Final = struct.Struct("<Q")
_CLIENT: Final = struct.Struct("<I")
_OUTCOMES: Final = struct.Struct("<BB")
_SIZE: Final = _SLOT.size
_AGE_AT, _CLIENT_AT, _OUTCOMES_AT, _SAVED_AT = 32, 40, 50, 52
_ROW: Final = struct.Struct("<BBHHHQQQQ")
"""An answer on disk: kind, first outcome, position, row, number of outcomes, digest, sequence, stamp, age; then
all outcomes if they are mixed."""
KIND_ALIKE: Final = 1
KIND_MIXED: Final = 2
KIND_WINDOW: Final = 4
"""An INSERT with windows: what the leader chose, 4 bytes a row, follows instead of outcomes."""
KIND_MET: Final = 5
"""An INSERT of which some rows met messages of the same keys: all outcomes, then what was chosen in windows (if the
first outcome's place says 1), then 26 bytes for each row that did not take effect: see `PRESENT`."""
_KIND_NONE: Final = 0  # the outcomes are not known yet, or there are none
NO_SLOT: Final = (1 << 32) - 1
_BLANK: Final = bytes(_SIZE)


class Answer:
    """The effect of a request: its place in the log, and one outcome per row.

    An INSERT has none if all its rows took effect. Otherwise `present` has the messages that the others met.
    """

    __slots__ = (
        "age_ms", "digest", "outcomes", "position", "present", "row", "rows", "sequence", "stamp", "window",
    )  # fmt: skip

    def __init__(
        self, digest: int, sequence: int, position: int, row: int, stamp: int, age_ms: int, rows: int
    ) -> None:
        self.digest = digest
        self.sequence = sequence
        self.position = position  # which request of its record
        self.row = row
        self.stamp = stamp
        self.age_ms = age_ms  # of the partition when it was given
        self.rows = rows  # how many outcomes it has, or will have
        self.outcomes: U8 = NO_U8
        self.present: Present = NO_PRESENT
        self.window: U32 = NO_U32  # of an INSERT: how much later its rows are due than was asked for, ms

    @classmethod
    def unpack(cls, value: bytes) -> Answer:
        """Read what `Answers.row` wrote."""
        kind, one, position, row, count, digest, sequence, stamp, age_ms = _ROW.unpack_from(value)
        answer = cls(digest, sequence, position, row, stamp, age_ms, count)
        if kind == KIND_MET:
            answer.rows = 0
            answer.take_met(value[_ROW.size :], count, bool(one))
        elif kind == KIND_WINDOW:
            answer.window, answer.rows = np.frombuffer(value, np.uint32, count, _ROW.size).copy(), 0
        elif kind == KIND_MIXED:
            answer.outcomes = np.frombuffer(value, np.uint8, count, _ROW.size).copy()
        elif count:
            answer.outcomes = np.full(count, one, np.uint8)
        return answer

    def take_met(self, data: bytes, count: int, windows: bool) -> None:
        """Take what `met_bytes` made of the outcomes, windows and messages of this many rows."""
        self.outcomes = np.frombuffer(data, np.uint8, count)
        at = count
        if windows:
            self.window = np.frombuffer(data, np.uint32, count, at)
            at += 4 * count
        self.present = np.frombuffer(data, PRESENT, offset=at)

    def met_bytes(self) -> bytes:
        """Return outcomes, windows and the messages that rows met."""
        return self.outcomes.tobytes() + self.window.tobytes() + self.present.tobytes()


def _kind_of(outcomes: U8) -> tuple[int, int]:
    values = outcomes.tobytes()
    if not values:
        return _KIND_NONE, 0
    mixed = values.count(values[0]) < len(values)
    return (KIND_MIXED if mixed else KIND_ALIKE), values[0]


class Answers:
    """Packed answers, in the order in which they were given.

    Attributes:
        oldest: the slot of the first one; NO_SLOT: there is none.
    """

    __slots__ = ("_data", "_free", "_met", "_mixed", "_newer", "_newest", "_older", "_windows", "oldest")

    def __init__(self) -> None:
        self._data = bytearray()
        self._older, self._newer = array("I"), array("I")  # by slot
        self._free = array("I")
        self._mixed: dict[int, bytes] = {}  # slot -> outcomes that are not all alike
        self._windows: dict[int, bytes] = {}  # slot -> what was chosen in the windows of an INSERT
        self._met: dict[
            int, tuple[bytes, int]
        ] = {}  # slot -> what rows of an INSERT met, and how many there are
        self.oldest = self._newest = NO_SLOT

    def __len__(self) -> int:
        return len(self._newer) - len(self._free)

    def add(self, client: int, number: int, answer: Answer, *, saved: bool = False) -> int:
        """Add the newest answer, to a client's request of this number; returns its slot.

        Args:
            client: any number of the caller's.
            number: of the request.
            answer: to be packed.
            saved: its row is on disk.
        """
        newest = self._newest
        if self._free:
            slot = self._free.pop()
            self._older[slot], self._newer[slot] = newest, NO_SLOT
        else:
            slot = len(self._newer)
            self._older.append(newest)
            self._newer.append(NO_SLOT)
            self._data += _BLANK
        if newest == NO_SLOT:
            self.oldest = slot
        else:
            self._newer[newest] = slot
        self._newest = slot
        _SLOT.pack_into(
            self._data, slot * _SIZE, number, answer.digest, answer.sequence, answer.stamp, answer.age_ms, client,
            answer.position, answer.row, answer.rows, _KIND_NONE, 0, saved,
        )  # fmt: skip
        if len(answer.window):
            self._windows[slot] = answer.window.tobytes()
        if len(answer.present):
            self.set_met(slot, answer)
        elif len(answer.outcomes):
            self.set_outcomes(slot, answer.outcomes)
        return slot

    def set_met(self, slot: int, answer: Answer) -> int:
        """Note what rows of an INSERT met, and their outcomes; returns how many bytes more the answer weighs."""
        before = self.extra_bytes(slot)
        self._met[slot] = answer.met_bytes(), len(answer.outcomes)
        return self.extra_bytes(slot) - before

    def remove(self, slot: int) -> None:
        """Forget an answer."""
        older, newer = self._older[slot], self._newer[slot]
        if older == NO_SLOT:
            self.oldest = newer
        else:
            self._newer[older] = newer
        if newer == NO_SLOT:
            self._newest = older
        else:
            self._older[newer] = older
        if self._mixed:
            self._mixed.pop(slot, None)
        if self._windows:
            self._windows.pop(slot, None)
        if self._met:
            self._met.pop(slot, None)
        self._free.append(slot)
        if len(self._free) == len(self._newer):  # give back what a burst has taken
            self._data, self._older, self._newer, self._free = bytearray(), array("I"), array("I"), array("I")

    def age_ms(self, slot: int) -> int:
        """Return the age of the partition at which an answer was given."""
        age: int = _NUMBER.unpack_from(self._data, slot * _SIZE + _AGE_AT)[0]
        return age

    def rows(self, slot: int) -> int:
        """Return how many outcomes an answer has, or will have."""
        rows: int = _SLOT.unpack_from(self._data, slot * _SIZE)[8]
        return rows

    def extra_bytes(self, slot: int) -> int:
        """Return what an answer weighs beside its head.

        That is a byte for each outcome, 4 for each instant chosen, 26 for each message met.
        """
        if slot in self._met:
            return len(self._met[slot][0])
        return self.rows(slot) + len(self._windows.get(slot, b""))

    def client(self, slot: int) -> int:
        """Return whose answer it is."""
        client: int = _CLIENT.unpack_from(self._data, slot * _SIZE + _CLIENT_AT)[0]
        return client

    def number(self, slot: int) -> int:
        """Return the number of its request."""
        number: int = _NUMBER.unpack_from(self._data, slot * _SIZE)[0]
        return number

    def get(self, slot: int) -> Answer:
        """Return an answer."""
        found = _SLOT.unpack_from(self._data, slot * _SIZE)
        _, digest, sequence, stamp, age_ms, _, position, row, rows, kind, one, _ = found
        answer = Answer(digest, sequence, position, row, stamp, age_ms, rows)
        if kind == KIND_MIXED:
            answer.outcomes = np.frombuffer(self._mixed[slot], np.uint8)
        elif kind:
            answer.outcomes = np.full(rows, one, np.uint8)
        if slot in self._met:
            answer.take_met(*self._met[slot], slot in self._windows)
        elif slot in self._windows:
            answer.window = np.frombuffer(self._windows[slot], np.uint32)
        return answer

    def row(self, slot: int) -> bytes:
        """Return an answer as it is on disk."""
        found = _SLOT.unpack_from(self._data, slot * _SIZE)
        _, digest, sequence, stamp, age_ms, _, position, row, rows, kind, one, _ = found
        count = rows if kind else 0
        if met := self._met.get(slot):
            head = _ROW.pack(
                KIND_MET, slot in self._windows, position, row, met[1], digest, sequence, stamp, age_ms
            )
            return head + met[0]
        if window := self._windows.get(slot):
            return (
                _ROW.pack(KIND_WINDOW, 0, position, row, len(window) // 4, digest, sequence, stamp, age_ms)
                + window
            )
        head = _ROW.pack(kind or KIND_ALIKE, one, position, row, count, digest, sequence, stamp, age_ms)
        return head + self._mixed[slot] if kind == KIND_MIXED else head

    def is_saved(self, slot: int) -> bool:
        """Whether the answer has a row on disk."""
        return bool(self._data[slot * _SIZE + _SAVED_AT])

    def set_saved(self, slot: int) -> None:
        """Note that the answer has a row on disk."""
        self._data[slot * _SIZE + _SAVED_AT] = 1

    def set_outcomes(self, slot: int, outcomes: U8) -> None:
        """Note the outcomes of the rows of a request."""
        kind, one = _kind_of(outcomes)
        if kind == KIND_MIXED:
            self._mixed[slot] = outcomes.tobytes()
        _OUTCOMES.pack_into(self._data, slot * _SIZE + _OUTCOMES_AT, kind, one)

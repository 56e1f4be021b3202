"""One recurrence, as its home partition knows it, and its two rows on the disk.

The row of its *terms* is written when they change: it holds the payload. The row of its *course* is written whenever it
has fired, or when a message of it begins or ends.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from dueq.core.ports.tables import TableRow
from dueq.errors import UnknownVersion
from dueq.recurring.terms import terms_of

_ROW_VERSION: Final = 1
_TERMS: Final = struct.Struct("<BQQI")
"""version, number, anchor, bytes of the document; the document and the payload follow."""
_COURSE: Final = struct.Struct("<BBQQQQQ")
"""version, paused, next tick, last tick, unfinished, messages, skipped; a `_FIRED` each follows."""
_FIRED: Final = struct.Struct("<QQQH")
_TERMS_TAG: Final = b"t"
_COURSE_TAG: Final = b"c"


class Fired(NamedTuple):
    """A message that was fired ahead of its instant."""

    tick: int
    first: int
    """When it begins to wait, Unix ms: part of its id."""
    sequence: int
    row: int


class Recurrence:
    """One recurrence.

    Attributes:
        name: in its topic.
        number: log sequence of the record that created it; its messages carry it.
        document: its terms, as canonical JSON (see `recurring.terms`).
        payload: of its messages.
        anchor: the instant from which a period counts, Unix ms.
        paused: it waits for no tick.
        next: the tick that it waits for, Unix ms; 0: none.
        past: the last tick that has a message, but for those in `fired`; 0: none.
        fired: messages whose instants had not come when it fired or was changed last, and those of all ticks after
            these or after `next`; the soonest first.
        unfinished: messages of it that wait or are leased.
        messages: that it has made, but for those that were taken back.
        skipped: how often it has moved on without a message.
        saved: it has rows on disk.
    """

    __slots__ = (
        "anchor",
        "document",
        "fired",
        "messages",
        "name",
        "next",
        "number",
        "past",
        "paused",
        "payload",
        "saved",
        "skipped",
        "unfinished",
    )  # fmt: skip

    def __init__(self, name: str, number: int, document: str, payload: bytes, anchor: int) -> None:
        self.name, self.number, self.document, self.payload, self.anchor = (
            name,
            number,
            document,
            payload,
            anchor,
        )
        self.paused = self.saved = False
        self.next = self.past = self.unfinished = self.messages = self.skipped = 0
        self.fired: tuple[Fired, ...] = ()

    @property
    def body(self) -> bytes:
        """The name of the shared body of its messages; empty: there is none."""
        return bytes.fromhex(terms_of(self.document).body)

    def has_message(self, tick: int) -> bool:
        """Whether a tick has one, or is before one whose instant has come."""
        return tick <= self.past or any(fired.tick == tick for fired in self.fired)

    def enter(self, fired: Fired) -> None:
        """A tick has a message now."""
        self.fired = tuple(sorted((*self.fired, fired), key=lambda each: each.first))

    @property
    def weight(self) -> int:
        """Its share of the partition's limit, bytes."""
        return len(self.name) + len(self.document) + len(self.payload)

    def come(self, stamp: int) -> None:
        """Forget messages whose instants have come; but not while ticks before theirs may still get messages.

        These are the one that is waited for, and those whose messages may be taken back.
        """
        coming = [fired.tick for fired in self.fired if fired.first > stamp]
        waiting = [*coming, self.next] if self.next else coming
        gone = [fired.tick for fired in self.fired if not waiting or fired.tick < min(waiting)]
        self.past = max([self.past, *gone])
        self.fired = tuple(fired for fired in self.fired if fired.tick not in gone)

    # ------------------------------------------------------------ rows

    def terms_row(self) -> TableRow:
        """Return the row of its terms."""
        document = self.document.encode()
        head = _TERMS.pack(_ROW_VERSION, self.number, self.anchor, len(document))
        return TableRow(_TERMS_TAG + self.name.encode(), head + document + self.payload)

    def course_row(self) -> TableRow:
        """Return the row of its course."""
        head = _COURSE.pack(
            _ROW_VERSION, self.paused, self.next, self.past, self.unfinished, self.messages, self.skipped
        )
        fired = b"".join(_FIRED.pack(*fired) for fired in self.fired)
        return TableRow(_COURSE_TAG + self.name.encode(), head + fired)

    def follow(self, value: bytes) -> None:
        """Read the row of its course.

        Raises:
            UnknownVersion: a newer build wrote it.
        """
        _check_version(value)
        _, paused, self.next, self.past, self.unfinished, self.messages, self.skipped = _COURSE.unpack_from(
            value
        )
        self.paused = bool(paused)
        self.fired = tuple(map(Fired._make, _FIRED.iter_unpack(value[_COURSE.size :])))


def deleted_rows(name: str) -> list[TableRow]:
    """Return the rows that say that there is no recurrence of this name."""
    return [TableRow(tag + name.encode(), None) for tag in (_TERMS_TAG, _COURSE_TAG)]


def read_rows(rows: list[TableRow]) -> list[Recurrence]:
    """Return the recurrences that these rows tell of.

    Raises:
        UnknownVersion: a newer build wrote one.
    """
    found: dict[bytes, Recurrence] = {}
    for key, value in rows:
        if value is not None and key.startswith(_TERMS_TAG):
            found[key[1:]] = _with_terms(key[1:].decode(), value)
    for key, value in rows:
        if value is not None and key.startswith(_COURSE_TAG):
            found[key[1:]].follow(value)
    return list(found.values())


def _with_terms(name: str, value: bytes) -> Recurrence:
    _check_version(value)
    _, number, anchor, length = _TERMS.unpack_from(value)
    behind = _TERMS.size + length
    return Recurrence(name, number, value[_TERMS.size : behind].decode(), value[behind:], anchor)


def _check_version(value: bytes) -> None:
    if value[0] != _ROW_VERSION:
        raise UnknownVersion(f"a recurrence's row of version {value[0]}; this build knows {_ROW_VERSION}")

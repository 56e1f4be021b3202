"""Pushes laid out before their instant: what a LEASE record grants is sorted, cut and laid out when it is applied.

A push that leaves at its millisecond should only cost the questions that must wait for that instant: whether its leases
are unchanged, how late it is by mesh time, who leads, and the next number of the session. Everything else is known when
the leases are granted, some 30 to 250 ms before.

Nothing here is believed at the instant. A piece leaves as it was laid out if each of its leases is granted, under the
same token, with half of it left and its payload at hand. A cancel, a move, an expiry, a goodbye, an upload that is
sent anew all change one of these. If any due piece is not whole, all due pieces go the general way (`pushes`), which
gives the same frames. So does a lane whose granted leases were extended, as their rows say how much of a lease is left.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dueq.core.delivery.due_queue import NEVER_MS
from dueq.core.delivery.leases import FEW, LeaseTable, Phase
from dueq.core.ports.entry import Entries, is_wide, keys_of, meta_of
from dueq.core.state.entry_rows import Slots
from dueq.instant import Now
from dueq_codecs.pushes import PUSH_ROW, PushRows
from dueq_codecs.records import NO_U16, NO_U64, U16, U32, U64

_ROW_BYTES: Final = PUSH_ROW.itemsize
_TAKEN: Final = ("first", "sequence", "due", "token", "size", "crc", "row", "attempt")


def lay_out(entries: Entries, uid: U32 | int, left_ms: U32 | npt.NDArray[np.int64]) -> PushRows:
    """Return the rows of a push as they travel."""
    rows = np.empty(len(entries), PUSH_ROW)
    for name in _TAKEN:
        rows[name] = entries[name]
    rows["uid"] = uid
    rows["lease_left_ms"] = left_ms
    rows["keyed"] = meta_of(entries["flags"])
    return rows


class More(NamedTuple):
    """Values that only some messages have: a column each, empty where all are 0."""

    rank: U16
    version: U64

    def in_order(self, order: list[int]) -> More:
        """Return the columns in another order."""
        return More(
            self.rank[order] if len(self.rank) else self.rank,
            self.version[order] if len(self.version) else self.version,
        )


NO_MORE: Final = More(NO_U16, NO_U64)


def more_of(entries: Entries) -> More:
    """Return what travels beside the rows of a push."""
    if not is_wide(entries):
        return NO_MORE
    rank, version = entries["rank"].astype(np.uint16), np.ascontiguousarray(entries["version"])
    ranked, changed = rank.any(), version.any()
    if not ranked and not changed:
        return NO_MORE
    return More(rank if ranked else NO_U16, version if changed else NO_U64)


class Piece(NamedTuple):
    """Leases of one LEASE record that are due in the same millisecond and have the same owner."""

    wait_ms: int
    owner: int
    """Number of the consumer's session."""
    slots: Slots
    """In order of (log sequence, row)."""
    places: list[int]
    """The slots once more: what is looked at one by one is faster as a list."""
    tokens: U64
    """The record's, once per row."""
    marks: list[int]
    """The tokens once more."""
    rows: bytes
    """As they travel."""
    keys: list[int]
    size: int
    """Bytes of payload."""
    lease_us: int
    first: int
    """Rows that are delivered for the first time."""
    more: More = NO_MORE

    def is_whole(self, leases: LeaseTable, now: Now) -> bool:
        """Whether all of it may leave as it was laid out."""
        slots = self.slots
        if len(slots) <= FEW:
            return leases.all_pushable(self.places, self.marks, now.mono_us)
        return bool(
            (
                (leases.phase[slots] == Phase.GRANTED)
                & (leases.token[slots] == self.tokens)
                & (leases.act_us[slots] > now.mono_us)
                & (leases.ready[slots] != 0)
            ).all()
        )


class Prepared:
    """The pieces of one lane that wait for their instant."""

    def __init__(self, uid: int, leases: LeaseTable) -> None:
        self._uid = uid
        self._leases = leases
        self._heap: list[tuple[int, int, Piece]] = []
        self._places = 0

    @property
    def next_ms(self) -> int:
        """The instant of the first piece; NEVER_MS when there is none."""
        return self._heap[0][0] if self._heap else NEVER_MS

    def add(self, slots: Slots, entries: Entries) -> None:
        """Lay out what these granted leases will push; no payload among them travels in chunks."""
        tokens, owners = self._leases.token[slots], self._leases.owner[slots]
        keys = keys_of(entries)
        waits = entries["wait_at"]
        order = np.lexsort((keys, owners, waits))
        slots, tokens, owners, keys = slots[order], tokens[order], owners[order], keys[order]
        entries = entries.take(order)
        rows = lay_out(entries, self._uid, entries["lease_ms"]).tobytes()
        waits, lengths = entries["wait_at"], entries["lease_ms"].tolist()
        ends = np.flatnonzero((waits[1:] != waits[:-1]) | (owners[1:] != owners[:-1])) + 1
        before = np.concatenate(([0], np.cumsum(entries["size"], dtype=np.int64))).tolist()
        first = np.concatenate(([0], np.cumsum(entries["attempt"] == 1))).tolist()
        due, owner_of = waits.tolist(), owners.tolist()
        places, names, marks = slots.tolist(), keys.tolist(), tokens.tolist()
        more = more_of(entries)
        for begin, end in pairwise((0, *ends.tolist(), len(slots))):
            self._places += 1
            piece = Piece(
                due[begin], owner_of[begin], slots[begin:end], places[begin:end], tokens[begin:end], marks[begin:end],
                rows[begin * _ROW_BYTES : end * _ROW_BYTES], names[begin:end], before[end] - before[begin],
                lengths[begin] * 1000, first[end] - first[begin],
                more if more is NO_MORE else more_of(entries[begin:end]),
            )  # fmt: skip
            heappush(self._heap, (piece.wait_ms, self._places, piece))

    def take_due(self, mesh_ms: int) -> list[Piece]:
        """Take the pieces whose instant has come, in order."""
        heap, taken = self._heap, []
        while heap and heap[0][0] <= mesh_ms:
            taken.append(heappop(heap)[2])
        return taken

    def take_all(self) -> list[Piece]:
        """Take all pieces: they go the general way."""
        taken, self._heap = [piece for _, _, piece in self._heap], []
        return taken


class Frame(NamedTuple):
    """All that leaves for one session."""

    rows: PushRows
    order: list[int] | None
    """Where each row's payload is among those of the pieces, one piece after the other; None: in that order."""
    more: More


def joined(pieces: list[Piece]) -> Frame:
    """Put the rows of pieces together, in order of (wait_at, log sequence, row)."""
    if len(pieces) == 1:
        return Frame(np.frombuffer(pieces[0].rows, PUSH_ROW), None, pieces[0].more)
    rows = b"".join([piece.rows for piece in pieces])
    more = NO_MORE
    for piece in pieces:
        if piece.more is not NO_MORE:
            more = _more_of_all(pieces)
            break
    order: list[int] | None = None
    before_ms = -1
    for piece in pieces:
        if piece.wait_ms <= before_ms:
            order = _order(pieces)
            rows = b"".join([rows[at * _ROW_BYTES : (at + 1) * _ROW_BYTES] for at in order])
            more = more.in_order(order)
            break
        before_ms = piece.wait_ms
    return Frame(np.frombuffer(rows, PUSH_ROW), order, more)


def _order(pieces: list[Piece]) -> list[int]:
    """Return the places of the rows of pieces in order of (wait_at, log sequence, row)."""
    names = [(piece.wait_ms, key) for piece in pieces for key in piece.keys]
    return sorted(range(len(names)), key=names.__getitem__)


def _more_of_all(pieces: list[Piece]) -> More:
    """Return the columns of pieces one after the other, with zeros where some have none."""
    found = []
    for name, empty in NO_MORE._asdict().items():
        columns = [getattr(piece.more, name) for piece in pieces]
        if any(map(len, columns)):
            sizes = [len(piece.keys) for piece in pieces]
            columns = [
                column if len(column) else np.zeros(size, empty.dtype)
                for column, size in zip(columns, sizes, strict=True)
            ]
            found.append(np.concatenate(columns))
        else:
            found.append(empty)
    return More(*found)

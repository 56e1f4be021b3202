"""Reads of unique keys that are only on the disk, and the rows that must stay in memory meanwhile.

    INSERT in the log ──► cold: its keys are pinned, and read with the entries of those that bear them
    it is the next    ──► prepare: the entries of those that bear them by now are pinned, and read if they are cold
    applied           ──► let go

A key is pinned while older INSERTs are not yet applied. So the message that bears it is known only when the record is
the next one. The entries that come with the keys, read from one state of the disk, are nearly always the right ones;
`prepare` sees to the rest.

A REDRIVE names messages, and their entries say which keys they want back. These keys are read when the REDRIVE is the
next record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from dueq.core.ports.entry import Entries, State, is_full
from dueq.core.ports.names import Lasting, Name, hashes_of
from dueq.core.state.cold import ColdIds, ColdReads, Hold
from dueq.core.state.entry_rows import Slots
from dueq.core.state.names import Names
from dueq.core.state.residency import Residency
from dueq.core.state.table import Table
from dueq.errors import invariant
from dueq_codecs.records import Record, RecordKind

KINDS: Final = frozenset((RecordKind.INSERT, RecordKind.REDRIVE))
"""Kinds that ask which message bears a key."""
_OF_NAMES: Final = -1
"""Stands for the first instant in pairs of `ColdReads` that are reads of keys, or sweeps."""
_NO_SLOTS: Final[Slots] = np.empty(0, np.intp)


class NamesWanted(NamedTuple):
    """Keys to be read from the disk, with the entries of the messages that bear them."""

    number: int
    hashes: list[bytes]


class NameHold(Hold):
    """Keys that are kept in memory, and the entries of those that bear them."""

    __slots__ = ("hashes", "over", "owners", "prepared")

    def __init__(self, hashes: list[bytes]) -> None:
        super().__init__(_NO_SLOTS)
        self.hashes = hashes
        self.owners: list[Hold] = []
        self.prepared = self.over = False

    @property
    def ready(self) -> bool:
        """Whether everything is in memory."""
        return self.prepared and not self.unresolved and not any(hold.unresolved for hold in self.owners)


class NameHolds:
    """The keys that records in the log, and lookups of messages, keep in memory."""

    def __init__(self, names: Names, table: Table, residency: Residency) -> None:
        self._names, self._table, self._residency = names, table, residency
        self._reads: ColdReads = residency.reads
        self._held: dict[int, NameHold] = {}  # by the sequence of the record
        self._asking: dict[int, NameHold] = {}  # by the number of the read
        self._numbers = 0

    # ------------------------------------------------------------ records in the log

    def cold(self, record: Record) -> NamesWanted | None:
        """Hold an INSERT: pin its keys; return what to read of them before it can be applied."""
        if not len(record.key_high) and not len(record.once_high):
            return None
        self.unpin(record)
        hashes = hashes_of(record.key_high, record.key_low)
        if len(record.once_high):
            hashes += hashes_of(record.once_high, record.once_low)
        elif fresh := self._names.hold_fresh(record.sequence, hashes, record.key_high, record.key_low):
            hashes = fresh.others
        hold, wanted = self.hold(hashes)
        self._held[record.sequence] = hold
        return wanted

    def prepare(self, record: Record) -> tuple[NamesWanted | None, ColdIds | None]:
        """Pin what the next record needs of keys; return what is to be read of them, and of entries."""
        hold = self._held.get(record.sequence)
        if record.kind == RecordKind.REDRIVE and hold is None:
            hold, wanted = self.hold(self._wanted_back(record))
            hold.prepared = True
            self._held[record.sequence] = hold
            return wanted, None
        if hold is None or hold.prepared or hold.unresolved:
            return None, None
        hold.prepared = True
        names, hashes = self._names, hold.hashes
        if (fresh := names.fresh.get(record.sequence)) is not None and fresh.touched:
            hashes = hashes + fresh.hashes
        if names.are_unknown(hashes):
            return None, None
        owners = [
            name
            for digest in dict.fromkeys(hashes)
            if (name := names.get(digest)) is not None and not isinstance(name, Lasting)
        ]
        if not owners:
            return None, None
        keys = [key for _, key in owners]
        entries, asked = self._residency.hold(
            ColdIds(
                np.array([first for first, _ in owners], np.uint64),
                np.array([key >> 16 for key in keys], np.uint64),
                np.array([key & 0xFFFF for key in keys], np.uint16),
            )
        )
        hold.owners.append(entries)
        return None, asked

    def _wanted_back(self, record: Record) -> list[bytes]:
        rows = self._table.take(
            self._table.find((record.target_sequence << np.uint64(16)) | record.target_row)
        )
        if not is_full(rows):
            return []
        keyed = (rows["state"] == State.DEAD) & ((rows["key_high"] != 0) | (rows["key_low"] != 0))
        rows = rows[keyed]
        return hashes_of(rows["key_high"], rows["key_low"])

    def ready(self, record: Record) -> bool:
        """Return whether all that a record needs of keys is in memory."""
        hold = self._held.get(record.sequence)
        return hold.ready if hold is not None else record.kind != RecordKind.REDRIVE

    def take(self, record: Record) -> NameHold | None:
        """Take the hold off a record that is being applied, to be let go by `applied`; None: it needs no key."""
        if record.sequence not in self._held:
            self.cold(record)
        self.prepare(record)
        hold = self._held.pop(record.sequence, None)
        invariant(
            hold is None or hold.ready,
            "a record is applied before its keys were read",
            uid=self._table.uid,
            sequence=record.sequence,
        )
        return hold

    def unpin(self, record: Record) -> None:
        """Let go of a record that was cut off the log before it was applied."""
        hold = self._held.pop(record.sequence, None)
        if hold is not None:
            self.applied(record, hold)

    def applied(self, record: Record, hold: NameHold) -> None:
        """Let go of what `take` returned: the record is applied."""
        if record.sequence in self._names.fresh:
            self._names.let_fresh_go(record.sequence)
        self.release(hold)

    # ------------------------------------------------------------ keys

    def hold(self, hashes: list[bytes]) -> tuple[NameHold, NamesWanted | None]:
        """Pin keys; return what is to be read of them. The hold must be released."""
        names, hold = self._names, NameHold(hashes)
        if not hashes:
            return hold, None
        names.pin(hashes)
        unknown = names.unknown(hashes)
        wanted = names.perhaps_stored(unknown)
        if not wanted:
            names.learn(unknown, {})
            return hold, None
        if len(wanted) < len(unknown):
            names.learn(list(set(unknown).difference(wanted)), {})
        number = self._begin()
        self._reads.wait(hold, (_OF_NAMES, number))
        self._asking[number] = hold
        return hold, NamesWanted(number, wanted)

    def read(self, wanted: NamesWanted, found: dict[bytes, Name], entries: Entries) -> None:
        """Take the answer of a read: what the disk has of keys, and the entries of those that bear them."""
        hold = self._asking.pop(wanted.number)
        if not hold.over:
            self._names.learn(wanted.hashes, found)
            if len(entries):
                hold.owners.append(self._residency.bring(entries))
        self._reads.end([(_OF_NAMES, wanted.number)])
        self.forget()

    def release(self, hold: NameHold) -> None:
        """Let go of what is held."""
        hold.over = True
        if hold.hashes:
            self._names.unpin(hold.hashes)
        for owners in hold.owners:
            self._residency.release(owners)
        self.forget()

    def named_by(self, hold: NameHold) -> list[Name | None]:
        """Return what each key of a hold that is resolved names; None: nothing."""
        return [self._names.get(digest) for digest in hold.hashes]

    def forget(self) -> None:
        """Forget what the disk has just so, unless an older read is under way."""
        if self._reads.settled:
            self._names.forget()

    def _begin(self) -> int:
        self._numbers += 1
        self._reads.begin((_OF_NAMES, self._numbers))
        return self._numbers

    # ------------------------------------------------------------ sweeping

    def wants_sweep(self) -> tuple[int, int] | None:
        """Return the number of a sweep, and the age before which remembered keys are to be read; None: not now.

        The caller must read them, and answer with `swept`.
        """
        before = self._names.wants_sweep()
        if before is None:
            return None
        self._names.sweeping()
        return self._begin(), before

    def swept(
        self,
        number: int,
        expired: list[tuple[int, bytes]],
        following: int | None,
        stale: Sequence[tuple[int, bytes]],
    ) -> None:
        """Take the answer of a sweep (see `Names.swept`)."""
        self._names.swept(expired, following, stale)
        self._reads.end([(_OF_NAMES, number)])
        self.forget()

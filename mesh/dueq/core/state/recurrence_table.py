"""The recurrences of one partition: their terms, the tick that each waits for, and its messages on their way.

             RECURRENCE create              FIRE (tick → following)
  (no name) ───────────────► waits for a tick ◄────────────────────┐
     ▲                        │   │  ▲    └───────────────────────┘
     │ delete         pause ▼  │  resume       with a message, or skipped without one
     └──────────────── paused ─┘  update: waits for a tick of its new terms

The leader computes instants and writes them into the records (`partition/recurrences`). This module computes only what
follows from the log alone, as replicas may have different rules for time zones.

One message per tick: a FIRE takes effect only if its tick is the one waited for, and brings a message only if the tick
has none. Both hold whatever leaders propose, in whatever order.

Some messages are fired ahead of their instants. A record that pauses, changes or deletes a recurrence names them, and
takes back those that were pushed to no consumer: their ticks count as never fired. A message that was released or
redriven is as if it had never been pushed.
"""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from sortedcontainers import SortedDict

from dueq.core.ports.entry import Entries, is_wide
from dueq.core.ports.tables import TableRow
from dueq.core.state.body_table import BodyTable
from dueq.core.state.recurrence import Fired, Recurrence, deleted_rows, read_rows
from dueq.recurring.terms import changed, packed, unpacked
from dueq_codecs.records import U8, Outcome, Record

Mask = npt.NDArray[np.bool_]

PAYLOAD = "payload"
BODY = "body"
ACTION = "action"
CREATE, UPDATE, PAUSE, RESUME, DELETE, TRIGGER = "create", "update", "pause", "resume", "delete", "trigger"
ACTIONS = (CREATE, UPDATE, PAUSE, RESUME, DELETE, TRIGGER)


class RecurrenceTable:
    """All recurrences of one partition.

    Args:
        bodies: those that the partition keeps; a recurrence holds the one that it names.

    Attributes:
        by_number: every recurrence.
        bytes: what all of them weigh.
    """

    def __init__(self, bodies: BodyTable) -> None:
        self._bodies = bodies
        self.by_number: dict[int, Recurrence] = {}
        self.bytes = 0
        self._by_name: SortedDict[str, Recurrence] = SortedDict()
        self._deleted: dict[str, None] = {}  # names that the disk still has
        self._terms_changed: dict[str, None] = {}
        self._changed: dict[str, None] = {}

    def recover(self, rows: list[TableRow]) -> None:
        """Begin with what the last checkpoint left.

        Raises:
            UnknownVersion: a newer build wrote a row.
        """
        for recurrence in read_rows(rows):
            recurrence.saved = True
            self._enter(recurrence)

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Recurrence | None:
        """Return the recurrence of this name."""
        found: Recurrence | None = self._by_name.get(name)
        return found

    def after(self, name: str, count: int) -> list[Recurrence]:
        """Return the next recurrences by name, at most this many."""
        names: Iterator[str] = self._by_name.irange(name, None, (False, False))
        return [self._by_name[name] for name in islice(names, count)]

    # ------------------------------------------------------------ records

    def act(self, record: Record, withdrawn: U8) -> Outcome:
        """Apply a RECURRENCE record.

        Args:
            record: the record.
            withdrawn: the outcomes of the messages that it names.
        """
        document = unpacked(record.document)
        action = document.pop(ACTION)
        recurrence = self.get(record.name)
        if action == CREATE:
            if recurrence is not None:
                return Outcome.EXISTS
            self._create(record, document)
            return Outcome.DONE
        if recurrence is None or action == TRIGGER:
            return Outcome.NOT_FOUND  # of one that is known a FIRE brings the message
        self._take_back(recurrence, record, withdrawn)
        if action == DELETE:
            self._let_body_go(recurrence)
            self._remove(recurrence)
            return Outcome.DONE
        if action == UPDATE:
            self._update(recurrence, record, document)
        else:
            recurrence.paused = action == PAUSE
        recurrence.next = int(record.following[0])
        recurrence.come(record.stamp)
        return Outcome.DONE

    def _create(self, record: Record, document: dict[str, Any]) -> None:
        payload = b64decode(document.pop(PAYLOAD, None) or "")
        if record.shared:
            document[BODY] = record.shared.hex()
            self._bodies.hold(record.shared, 1)
        created = Recurrence(record.name, record.sequence, packed(document), payload, int(record.tick[0]))
        created.next = int(record.following[0])
        if created.name in self._deleted:
            del self._deleted[created.name]
            created.saved = True
        self._enter(created)
        self._terms_changed[created.name] = self._changed[created.name] = None

    def _update(self, recurrence: Recurrence, record: Record, change: dict[str, Any]) -> None:
        self.bytes -= recurrence.weight
        if PAYLOAD in change or record.shared:
            recurrence.payload = b64decode(change.pop(PAYLOAD, None) or "")
            self._change_body(recurrence, record, change)
        recurrence.document = packed(changed(unpacked(recurrence.document), change))
        recurrence.anchor = int(record.tick[0])
        self.bytes += recurrence.weight
        self._terms_changed[recurrence.name] = None

    def _change_body(self, recurrence: Recurrence, record: Record, change: dict[str, Any]) -> None:
        """A change of the payload: hold the shared body that is named now, and let go of the one before."""
        change[BODY] = record.shared.hex()
        if record.shared:
            self._bodies.hold(record.shared, 1)
        self._let_body_go(recurrence)

    def _let_body_go(self, recurrence: Recurrence) -> None:
        if recurrence.body:
            self._bodies.hold(recurrence.body, -1)

    def _take_back(self, recurrence: Recurrence, record: Record, withdrawn: U8) -> None:
        """Forget messages that the record has taken back."""
        self._changed[recurrence.name] = None
        named = zip(
            record.target_sequence.tolist(), record.target_row.tolist(), withdrawn.tolist(), strict=True
        )
        gone = {(sequence, row) for sequence, row, outcome in named if outcome == Outcome.DONE}
        before = len(recurrence.fired)
        recurrence.fired = tuple(
            fired for fired in recurrence.fired if (fired.sequence, fired.row) not in gone
        )
        recurrence.messages -= before - len(recurrence.fired)

    def fire(self, record: Record, chosen: npt.NDArray[np.intp] | None) -> tuple[U8, npt.NDArray[np.intp]]:
        """Apply the rows of a FIRE to the recurrences; returns an outcome each, and the rows whose messages are new.

        Args:
            record: the record.
            chosen: the rows that take effect at all; None: every row.
        """
        outcomes = np.full(record.rows, Outcome.NOT_FOUND, np.uint8)
        new = []
        columns = (record.recurrence, record.tick, record.following, record.due)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        for row in range(len(rows)) if chosen is None else chosen.tolist():
            number, tick, following, due = rows[row]
            recurrence = self.by_number.get(number)
            if recurrence is None or not self._moves(recurrence, tick, following, due):
                continue
            self._changed[recurrence.name] = None
            outcomes[row] = Outcome.DONE
            if not due:
                recurrence.skipped += 1
                continue
            new.append(row)
            recurrence.messages += 1
            if tick:
                recurrence.come(record.stamp)
                recurrence.enter(Fired(tick, max(due, record.stamp), record.sequence, row))
        return outcomes, np.array(new, np.intp)

    @staticmethod
    def _moves(recurrence: Recurrence, tick: int, following: int, due: int) -> bool:
        """Move a recurrence on, if its tick is the one waited for and may have the message that comes with it."""
        if not tick:
            return True
        if recurrence.next != tick or (due and recurrence.has_message(tick)):
            return False
        recurrence.next = following
        return True

    # ------------------------------------------------------------ messages

    def count(self, rows: Entries, waiting: int, leased: int, dead: int = 0) -> None:
        """Count messages that begin (1) or stop (-1) to wait or to be leased; dead ones are finished."""
        if not self.by_number or not is_wide(rows):
            return
        column = rows["recurrence"]
        if not np.count_nonzero(column):
            return
        for number, count in Counter(column.tolist()).items():
            recurrence = self.by_number.get(number)
            if recurrence is not None:
                recurrence.unfinished += (waiting + leased) * count
                self._changed[recurrence.name] = None

    # ------------------------------------------------------------ by name

    def _enter(self, recurrence: Recurrence) -> None:
        self._by_name[recurrence.name] = self.by_number[recurrence.number] = recurrence
        self.bytes += recurrence.weight

    def _remove(self, recurrence: Recurrence) -> None:
        del self._by_name[recurrence.name], self.by_number[recurrence.number]
        self.bytes -= recurrence.weight
        self._terms_changed.pop(recurrence.name, None)
        self._changed.pop(recurrence.name, None)
        if recurrence.saved:
            self._deleted[recurrence.name] = None

    # ------------------------------------------------------------ checkpoints

    def expire(self, age_ms: int, stamp: int) -> None:
        """Forget nothing: a recurrence stays until it is deleted."""

    def changed_rows(self) -> list[TableRow]:
        """Return the rows that changed since the last call; from now on they count as being on disk."""
        rows = [row for name in self._deleted for row in deleted_rows(name)]
        rows += [self._by_name[name].terms_row() for name in self._terms_changed]
        for name in self._changed:
            rows.append(self._by_name[name].course_row())
            self._by_name[name].saved = True
        self._deleted.clear()
        self._terms_changed.clear()
        self._changed.clear()
        return rows

    def export(self) -> list[tuple[str, str, str]]:
        """Return everything known: (name, packed terms, packed course), sorted."""
        return [
            (name, *((row.value or b"").hex() for row in (found.terms_row(), found.course_row())))
            for name, found in self._by_name.items()
        ]

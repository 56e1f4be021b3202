"""Changes by records, kind by kind: of messages, or of a side table, or of both."""

from __future__ import annotations

import numpy as np

from dueq.core.state.applied import Applied
from dueq.core.state.cold import Hold
from dueq.core.state.entry_rows import Slots
from dueq.core.state.live import Index, LiveMessages
from dueq.core.state.residency import keys_named
from dueq.core.state.seen_messages import SeenMessages
from dueq.core.state.side_tables import SideTables
from dueq.core.state.small import SmallRecords
from dueq.core.state.table import Table
from dueq_codecs.records import NO_U8, U8, Record, RecordKind


class Changing:
    """The changes that records make to one partition.

    Args:
        table: the rows in memory.
        tables: everything that is not messages.
        live: the messages.
        small: the same for records of few rows; None: the topic's order has no such rules.
        messages: the messages, as side tables see them.
    """

    def __init__(
        self,
        table: Table,
        tables: SideTables,
        live: LiveMessages,
        small: SmallRecords | None,
        messages: SeenMessages,
    ) -> None:
        self._table, self._tables, self._live, self._small = table, tables, live, small
        self._messages = messages

    def change(
        self, record: Record, hold: Hold | None, chosen: Index | None, age_ms: int, applied: Applied
    ) -> U8:
        """Change what a record says.

        Args:
            record: it, its requests judged.
            hold: the rows that it names, where they are held.
            chosen: those of its rows that take effect; None: all of them.
            age_ms: the partition's age.
            applied: gets what dispatch needs to know.

        Returns:
            The outcome of each row; none of a kind that has no outcomes.
        """
        if record.kind == RecordKind.BARRIER:
            return NO_U8
        if self._small is not None and chosen is None and not record.name:
            outcomes = self._small.apply(record, applied)
            if outcomes is not None:
                return outcomes
        if record.kind == RecordKind.INSERT:
            number = 0
            if record.job and (chosen is None or len(chosen)):
                number = self._tables.jobs.insert(record, age_ms)
            body = 0
            if record.shared and (chosen is None or len(chosen)):
                body = self._tables.bodies.name(record, age_ms)
            self._live.insert(record, chosen, number, applied, body)
            return NO_U8
        if record.kind == RecordKind.FIRE:
            bodies = self._tables.bodies
            if record.shared and bodies.refuses(record):
                chosen = np.empty(0, np.intp)
            outcomes, new = self._tables.recurrences.fire(record, chosen)
            body = bodies.name(record, age_ms) if record.shared and len(new) else 0
            self._live.insert(record, new, 0, applied, body)
            return outcomes
        table = self._tables.of_kind.get(record.kind)
        if record.kind == RecordKind.BODY and chosen is not None:
            self._tables.bodies.repeated(record)
        if table is not None:
            return NO_U8 if chosen is not None else table.apply(record, age_ms, self._messages, applied)
        slots = hold.slots if hold is not None else self._table.find(keys_named(record))
        if record.kind == RecordKind.LEASE:
            self._live.lease(record, slots, applied)
            return NO_U8
        if record.kind == RecordKind.RECURRENCE:
            return self._recur(record, slots, chosen, age_ms, applied)
        if not record.name:
            return self._live.change(record, slots, chosen, applied)
        chosen = self._tables.passes.effective(record.name, self._table.take(slots), record.first)
        outcomes = self._live.change(record, slots, chosen, applied)
        self._tables.passes.worked(record.name, outcomes)
        return outcomes

    def _recur(self, record: Record, slots: Slots, chosen: Index | None, age_ms: int, applied: Applied) -> U8:
        if chosen is not None:
            return NO_U8
        withdrawn = self._live.change(record, slots, None, applied)
        if record.shared:
            self._tables.bodies.name(record, age_ms)
        return np.array([self._tables.recurrences.act(record, withdrawn)], np.uint8)

"""The interface of a partition's side tables (`side_tables` lists them)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dueq.core.ports.entry import Entries
from dueq.core.ports.tables import TableRow
from dueq.core.state.applied import Applied
from dueq.core.state.job import Job
from dueq_codecs.records import U8, Record


class SideTable(Protocol):
    """One side table."""

    def recover(self, rows: list[TableRow]) -> None:
        """Begin with what the last checkpoint left, in any order; called once, before anything else.

        Raises:
            UnknownVersion: a newer build wrote a row.
        """
        ...

    def expire(self, age_ms: int, stamp: int) -> None:
        """Forget rows that are too old, before each record.

        Args:
            age_ms: age of the partition.
            stamp: of the record, Unix ms.
        """
        ...

    def changed_rows(self) -> list[TableRow]:
        """Return the rows that changed since the last call; from now on they count as being on disk."""
        ...

    def export(self) -> object:
        """Return everything known in canonical form: plain values, the same at every replica."""
        ...


class Messages(Protocol):
    """The partition's messages, as far as a record of a side table may read and change them."""

    @property
    def waiting(self) -> int:
        """How many wait."""
        ...

    @property
    def dead(self) -> int:
        """How many are dead."""
        ...

    def decided(self, job: Job) -> Entries:
        """Let a job's messages be delivered, or no more, after its state has changed; returns those to deliver."""
        ...


class RecordTable(SideTable, Protocol):
    """A side table that has kinds of records of its own."""

    def apply(self, record: Record, age_ms: int, messages: Messages, applied: Applied) -> U8:
        """Apply one of them; returns an outcome per row.

        Args:
            record: of one of the table's kinds; a repeated request never comes here.
            age_ms: age of the partition.
            messages: the partition's messages.
            applied: to be told what dispatch and the leader's care must know.
        """
        ...


Count = Callable[[Entries, int, int, int], None]
"""Told of messages that begin (1) or stop (-1) to wait, to be leased, and to be dead."""

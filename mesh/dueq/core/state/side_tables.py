"""The side tables of one partition: replicated state that is not messages. This is where each is registered.

A side table is a module of its own, with its rules and the packing of its rows. To the timeline, the checkpoint and the
store all are alike: they expire, change and recover together, under the partition's uid and the table's tag, which
is said here and nowhere else. Everything happens inside `apply`: a function of the log alone.

The leader's work for a table (proposing records, asking other partitions) is not here: see `core/partition/care.py`.
"""

from __future__ import annotations

from typing import TypeVar

from dueq.core.ports.tables import Tables
from dueq.core.state import dedup
from dueq.core.state.body_table import BodyTable
from dueq.core.state.dedup import Deduplication, DedupLimits
from dueq.core.state.forecast import Forecast
from dueq.core.state.group_table import GroupTable
from dueq.core.state.heading_table import HeadingTable
from dueq.core.state.job_table import JobTable
from dueq.core.state.pass_table import PassTable
from dueq.core.state.recurrence_table import RecurrenceTable
from dueq.core.state.settings_table import SettingsTable
from dueq.core.state.side_table import Count, RecordTable, SideTable
from dueq.core.state.summary import Summary
from dueq.core.state.triggered_table import TriggeredTable
from dueq.errors import UnknownVersion
from dueq_codecs.records import RecordKind

AnyTable = TypeVar("AnyTable", bound=SideTable)


class SideTables:
    """All side tables of one partition.

    Args:
        tables: rows of the last checkpoint.
        summary: of the last checkpoint.
        place: the partition's place in its topic, and how many of the first are home to jobs.
        dedup_limits: how much is remembered of past requests.

    Attributes:
        of_kind: kind of a record -> the table that applies it.
        counting: who is told when messages begin and stop to wait or to be leased.

    Raises:
        UnknownVersion: a newer build wrote a row, or has a table that this one does not know.
    """

    def __init__(
        self, tables: Tables, summary: Summary, place: tuple[int, int], dedup_limits: DedupLimits
    ) -> None:
        self.of_kind: dict[RecordKind, RecordTable] = {}
        self._all: dict[str, tuple[bytes, SideTable]] = {}
        self._rows = dict(tables)
        self.dedup = self._enter("dedup", b"d", Deduplication(dedup_limits))
        self.job_dedup = self._enter("job_answers", b"a", Deduplication(dedup.JOB_DEDUP_LIMITS))
        self.jobs = self._enter("jobs", b"j", JobTable(*place, summary.jobs_given))
        self.forecast = self._enter("hours", b"f", Forecast(summary.far))
        self.groups = self._enter("groups", b"q", GroupTable())
        self.settings = self._enter("settings", b"s", SettingsTable())
        self.of_kind[RecordKind.JOB] = self.jobs
        self.of_kind[RecordKind.GROUP] = self.groups
        self.of_kind[RecordKind.SETTINGS] = self.settings
        self.passes = self._enter("passes", b"p", PassTable())
        self.of_kind[RecordKind.PASS] = self.passes
        self.bodies = self._enter("bodies", b"y", BodyTable())
        self.recurrences = self._enter("recurrences", b"r", RecurrenceTable(self.bodies))
        self.of_kind[RecordKind.BODY] = self.bodies
        self.headings = self._enter("headings", b"h", HeadingTable())
        self.triggered = self._enter("triggered", b"m", TriggeredTable())
        self.counting: tuple[Count, ...] = (
            self.jobs.count,
            self.groups.count,
            self.recurrences.count,
            self.bodies.count,
            self.triggered.count,
        )
        # Rows of the others do not grow old.
        aging = (self.dedup, self.job_dedup, self.jobs, self.groups, self.passes, self.bodies)
        self._expiring = [table.expire for table in aging]
        if self._rows:
            unknown = ", ".join(repr(tag.decode("latin-1")) for tag in sorted(self._rows))
            raise UnknownVersion(f"there are rows of side tables that this build does not know: {unknown}")

    def _enter(self, name: str, tag: bytes, table: AnyTable) -> AnyTable:
        """Register a table: its name in exports, its letter on the disk (never to be given to another)."""
        self._all[name] = tag, table
        table.recover(self._rows.pop(tag, []))
        return table

    @property
    def tags(self) -> dict[str, bytes]:
        """The letter of each table, by its name."""
        return {name: tag for name, (tag, _) in self._all.items()}

    def expire(self, age_ms: int, stamp: int) -> None:
        """Let every table forget its rows that are too old."""
        for expire in self._expiring:
            expire(age_ms, stamp)

    def changed_rows(self) -> Tables:
        """Return the rows that changed since the last call, of tables where any did."""
        changed = {tag: table.changed_rows() for tag, table in self._all.values()}
        return {tag: rows for tag, rows in changed.items() if rows}

    def export(self) -> dict[str, object]:
        """Return everything known, by the tables' names."""
        return {name: table.export() for name, (_, table) in self._all.items()}

"""One partition's messages and tables, as applied at this broker: for readers only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from dueq.core.partition.shown import shown
from dueq.core.ports.entry import Entries
from dueq.core.state.group_table import Group
from dueq.core.state.job import Job
from dueq.core.state.pass_table import Pass
from dueq.core.state.recurrence import Recurrence
from dueq.core.state.timeline import Timeline
from dueq_codecs.records import U64


class ContainingPartition(Protocol):
    """The partition, as far as its contents concern it."""

    @property
    def timeline(self) -> Timeline:
        """Its state: another one after it was filled from a snapshot."""
        ...


class Contents:
    """The contents of one partition; for reading only."""

    def __init__(self, partition: ContainingPartition) -> None:
        self._partition = partition

    # -------------------------------------------------------------- messages

    @property
    def count(self) -> int:
        """How many messages there are, dead ones included."""
        return self._partition.timeline.live_count

    @property
    def class_bytes(self) -> int:
        """How long a class is in keys of the index; 0: there is only one."""
        return self._partition.timeline.order.class_bytes

    def classes(self, rows: Entries) -> U64 | None:
        """Return the class of each row in the topic's order; None: there is only one."""
        return self._partition.timeline.order.classes(rows)

    def forecast(self, from_ms: int, seconds: int) -> list[tuple[int, int]]:
        """Return how many messages are due in each second (see `Timeline.forecast`)."""
        return self._partition.timeline.forecast(from_ms, seconds)

    @property
    def known_until_ms(self) -> int | None:
        """Up to when a forecast's seconds are exact (see `Timeline`)."""
        return self._partition.timeline.known_until_ms

    def waiting_by_hour(self) -> Mapping[int, int]:
        """Return counts of waiting messages, by hour since 1970."""
        return self._partition.timeline.waiting_by_hour

    def shown(self, rows: Entries) -> dict[str, Any]:
        """Return the columns of a page of browsing that rows alone do not tell."""
        return shown(self._partition.timeline, rows)

    def decided(self, entries: Entries) -> Entries:
        """Return those of some entries that no job hides."""
        barred = self._partition.timeline.jobs.barred(entries)
        return entries if barred is None else entries[~barred]

    def leased_after(self, key: int, most: int) -> tuple[Entries, bool]:
        """Return the next leased messages by key behind this one, and whether there are more."""
        found = self._partition.timeline.leased_after(key, most + 1)
        return found[:most], len(found) > most

    def remark_of(self, key: int) -> str | None:
        """Return why a message was given back last, where the disk may not have it yet; None: it has it."""
        return self._partition.timeline.remark_of(key)

    # -------------------------------------------------------------- tables

    def known_jobs(self) -> Iterable[Job]:
        """Return the jobs that are known here, the latest first."""
        return reversed(self._partition.timeline.jobs.by_key.values())

    def pass_named(self, name: str) -> Pass | None:
        """Return a pass, as it is known here; None: it is not."""
        return self._partition.timeline.passes.by_name.get(name)

    def groups_after(self, after: str, limit: int) -> list[Group]:
        """Return the next groups by name."""
        return self._partition.timeline.groups.after(after, limit)

    def recurrence(self, name: str) -> Recurrence | None:
        """Return the recurrence of this name that is at home here."""
        return self._partition.timeline.recurrences.get(name)

    def recurrences_after(self, name: str, count: int) -> list[Recurrence]:
        """Return the next recurrences by name after this one, at most this many."""
        return self._partition.timeline.recurrences.after(name, count)

    def body_bytes(self, name: bytes) -> int:
        """Return how long a shared body is that is kept here."""
        return self._partition.timeline.bodies.by_name[name].size

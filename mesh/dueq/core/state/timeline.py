"""The replicated state of one partition: the result of applying its log, record by record.

    record in the log ──► cold(record) ──ids to read──► (store) ──► entries_read(…)
                                                                        │
    record committed  ──► ready(record)? ──► apply(record) ──► Applied  ▼
    the next record   ──► prepare(record) ──keys, ids──► (store) ──► names_read(…), entries_read(…)
    now and then      ──► checkpoint() ──► (store) ──► checkpoint_saved(applied)
                          wants_scan() ──► (store) ──► scanned(…)

Apply is deterministic: it knows the record, the state and nothing else. It never touches the disk and never
waits, so everything that a record names must be in memory first: `cold` and `ready` see to that.

Memory holds every entry that changed since its last checkpoint, every lease, and the waiting entries inside the *hot
window* (see `residency`). The disk holds exactly the state after the last checkpoint. Recovery reads that state, then
replays the log: an index on the disk that is ahead of the checkpoint would make replay answer differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from dueq.core.ports.entry import Entries, State, are_triggered, canonical, joined, keys_of
from dueq.core.ports.names import Name
from dueq.core.ports.persistence import ClassLooked, RecoveredPartition, SaveCheckpoint
from dueq.core.state import dedup, name_holds
from dueq.core.state.applied import Applied, RequestResult
from dueq.core.state.body_table import BodyTable
from dueq.core.state.changing import Changing
from dueq.core.state.checkpoint import low_water_of, write_rows
from dueq.core.state.cold import ColdIds, Hold
from dueq.core.state.dedup import Deduplication, DedupLimits
from dueq.core.state.entry_rows import Slots
from dueq.core.state.group_table import GroupTable
from dueq.core.state.heading_table import HeadingTable
from dueq.core.state.judging import Judging
from dueq.core.state.live import LiveMessages
from dueq.core.state.name_holds import NameHolds, NamesWanted
from dueq.core.state.names import Names
from dueq.core.state.order import TIMELINE, Order
from dueq.core.state.pass_table import PassTable
from dueq.core.state.remarks import BYTES_PER_DIRTY
from dueq.core.state.residency import Residency, ScanWanted
from dueq.core.state.seen_messages import SeenMessages
from dueq.core.state.side_tables import SideTables
from dueq.core.state.small import SmallRecords
from dueq.core.state.summary import Summary
from dueq.core.state.table import FEW, OnDisk, Table
from dueq.core.state.window import Guide, HotWindow, Position, in_order
from dueq.errors import UnknownVersion, invariant
from dueq.limits import CHECKPOINT_ROWS, CHECKPOINT_ROWS_MAX, HOT_ROWS_MAX
from dueq_codecs.records import FEATURE_LEVEL, LEVEL_OF_KINDS, U16, U64, Record, RecordKind, RequestRef
from dueq_codecs.topic_settings import TopicSettings

FINISHED_PER_DIRTY = 4
"""Finished messages, or unique keys, that weigh as much as one dirty row."""

AGE_STEP_MS = 60_000
"""No record makes a partition older by more than this, whatever its stamp says."""


class Timeline:
    """One replica of one partition's state. Pure; one caller.

    Attributes:
        uid: the partition.
        applied: sequence of the last applied record.
        stamp: its stamp, Unix ms.
        level: the feature level that the partition has reached: the largest version of an applied record.
        low_water: no waiting message on disk is below this instant (as of the last checkpoint), Unix ms.
        jobs: what is known of jobs; for reading only.
        recurrences: the topic's that are at home here; for reading only.
        order: of the topic's messages.
        name_holds: unique keys that are kept in memory for a while.
        known_kinds: of records: what this build can apply.
    """

    known_kinds: ClassVar[frozenset[RecordKind]] = frozenset(RecordKind)

    def __init__(
        self,
        uid: int,
        recovered: RecoveredPartition | None = None,
        hot_rows_max: int = HOT_ROWS_MAX,
        dedup_limits: DedupLimits | None = None,
        place: tuple[int, int] = (0, 1),
        order: Order = TIMELINE,
        build_level: int = FEATURE_LEVEL,
        small_rows_max: int = FEW,
    ) -> None:
        """Begin with nothing, or with the last checkpoint that the store recovered; replay the tail then.

        Args:
            uid: the partition.
            recovered: what `dueq.storage` found; None: an empty partition.
            hot_rows_max: waiting messages to keep in memory, soonest first.
            dedup_limits: how much is remembered of past requests; None: the usual.
            place: the partition's place in its topic, and how many of the first are home to jobs: says which ones it
                decides about.
            order: of the topic's messages.
            build_level: the largest version of a record that can be applied.
            small_rows_max: up to this many rows of a record are applied one by one (see `small`).

        Raises:
            UnknownVersion: a newer build wrote the checkpoint.
        """
        summary = Summary.unpack(recovered.summary if recovered else b"")
        self.uid, self.level, self._build_level = uid, summary.level, build_level
        self._check_level(summary.level, "its checkpoint")
        self.applied = recovered.applied if recovered else 0
        self.stamp = summary.stamp
        self._age_ms = summary.age_ms
        self.low_water = recovered.low_water if recovered else 0
        self._table = Table(uid, order)
        self._tables = SideTables(
            recovered.tables if recovered else {}, summary, place, dedup_limits or dedup.DEDUP_LIMITS
        )
        self.jobs, self._forecast = self._tables.jobs, self._tables.forecast
        self.recurrences = self._tables.recurrences
        self.order = order
        self._window = order.window(self.jobs, self.low_water if summary.scheduled else None)
        self._names = Names(summary.names)
        self._names.age_ms = summary.age_ms
        self._live = LiveMessages(
            self._table, self._window, self._tables, self._names, summary.scheduled, summary.dead
        )
        small = (
            SmallRecords(self._live, self._window, small_rows_max)
            if isinstance(self._window, HotWindow)
            else None
        )
        self._residency = Residency(self._table, self._window, order, self.jobs, self._live, hot_rows_max)
        self.name_holds = NameHolds(self._names, self._table, self._residency)
        self._judging = Judging(self._tables)
        self._changing = Changing(
            self._table, self._tables, self._live, small, SeenMessages(self._live, self._residency)
        )
        self._saving: tuple[int, Slots] | None = None  # checkpoint in flight: its `applied`, its rows
        self._checkpointed = self.applied
        invariant(
            self._forecast.total == summary.scheduled,
            "the forecast does not add up to the waiting messages",
            uid=uid,
            forecast=self._forecast.total,
            scheduled=summary.scheduled,
        )
        if recovered is not None and len(recovered.leased):
            self._table.add(recovered.leased, OnDisk.LEASED)
            self._live.leased = len(recovered.leased)
            self._tables.triggered.leased = int(np.count_nonzero(are_triggered(recovered.leased)))

    # ------------------------------------------------------------ counts

    @property
    def scheduled_count(self) -> int:
        """Messages that wait, in memory or not."""
        return self._live.scheduled

    @property
    def leased_count(self) -> int:
        """Messages that a consumer holds."""
        return self._live.leased

    @property
    def age_ms(self) -> int:
        """The age of the partition: the growth of its records' stamps."""
        return self._age_ms

    @property
    def dedup(self) -> Deduplication:
        """The remembered requests; for reading only."""
        return self._tables.dedup

    @property
    def job_dedup(self) -> Deduplication:
        """The same of INSERTs that name a job."""
        return self._tables.job_dedup

    @property
    def settings(self) -> TopicSettings:
        """The topic's settings that are in force here; version 0 before its log has any."""
        return self._tables.settings.current

    @property
    def passes(self) -> PassTable:
        """The passes; for reading only."""
        return self._tables.passes

    @property
    def dead_count(self) -> int:
        """Messages that are dead, in memory or not."""
        return self._live.dead

    def remark_of(self, key: int) -> str | None:
        """Return the last reason of a message where the disk may not have it yet; None: it has it, if there is one."""
        return self._live.remarks.get(key)

    @property
    def live_count(self) -> int:
        """All messages."""
        return self._live.scheduled + self._live.leased + self._live.dead

    def next_ms(self, after_ms: int) -> int | None:
        """Return the next instant (Unix ms) at which a message in memory is due or a recurrence ticks, if any."""
        waits = self._table.rows["wait_at"][
            (self._table.state == State.WAITING) | (self._table.state == State.LEASED)
        ]
        waits = waits[waits > after_ms]
        ticks = [each.next for each in self.recurrences.by_number.values() if each.next > after_ms]
        return min([*ticks, *([int(waits.min())] if len(waits) else [])], default=None)

    @property
    def hot_count(self) -> int:
        """Waiting messages inside the hot window that may be delivered."""
        return self._window.count

    def end_of(self, of: int) -> Position | None:
        """Return the position behind which more of a class may be that is only on disk; None: there is no more."""
        return self._window.end_of(of)

    def unknown_from(self, until_ms: int) -> int | None:
        """Return the first class of which something that waits until then may be only on disk; None: there is none."""
        return self._window.unknown_from(until_ms)

    def unknown_in(self, first: int, behind: int, until_ms: int) -> int | None:
        """Return the same of the classes from `first` on, up to the one before `behind`."""
        return self._window.unknown_in(first, behind, until_ms)

    def unknown_at(self, first: int, behind: int) -> int | None:
        """Return since when something of these classes may be ready that is only on disk; None: nothing is there."""
        return self._window.unknown_at(first, behind)

    @property
    def unknown_count(self) -> int:
        """How many classes there are of which more may be that is only on disk."""
        return self._window.unknown_count

    @property
    def by_turns(self) -> bool:
        """Whether reads follow the order of turns: a group that waits for the disk keeps its turn."""
        return self._window.by_turns

    def led_by(self, guide: Guide | None) -> None:
        """Let the window follow the order of turns; None: no leader here knows it."""
        self._window.guide, self._window.cuts = guide, []
        if guide is not None:
            guide.expect(self._window.heads())

    def tell_cuts(self) -> None:
        """Tell the guide of which classes less is in memory since it was told."""
        window = self._window
        if window.cuts and window.guide is not None:
            window.guide.expect(window.cuts)
        window.cuts = []

    @property
    def bodies(self) -> BodyTable:
        """The shared bodies of messages; for reading only."""
        return self._tables.bodies

    @property
    def headings(self) -> HeadingTable:
        """The headers that a NACK has replaced; for reading only."""
        return self._tables.headings

    @property
    def triggered(self) -> Mapping[int, int]:
        """The messages that wait and that no pause and no rate hold: `first` by key."""
        return self._tables.triggered.first_of

    @property
    def triggered_leased(self) -> int:
        """How many of these are leased: they wait again if they are released."""
        return self._tables.triggered.leased

    @property
    def groups(self) -> GroupTable:
        """The groups of messages; for reading only."""
        return self._tables.groups

    @property
    def names_count(self) -> int:
        """Unique keys that are borne or remembered, and some that are remembered no more."""
        return self._names.count

    @property
    def names_run_out(self) -> bool:
        """Whether some of them may be remembered no more when the partition is older."""
        return self._names.run_out

    @property
    def names_in_memory(self) -> int:
        """How many of them are in memory."""
        return len(self._names.known)

    @property
    def memory_rows(self) -> int:
        """Rows in memory, tombstones included."""
        return len(self._table)

    @property
    def dirty_rows(self) -> int:
        """Rows that the next checkpoint writes; finished messages and unique keys weigh a quarter."""
        texts = self._live.remarks.size // BYTES_PER_DIRTY
        seldom = (self._live.finished_count + self._names.changed_count) // FINISHED_PER_DIRTY
        return self._table.dirty_count + seldom + texts

    @property
    def wants_checkpoint(self) -> bool:
        """Whether so much has changed that a checkpoint is due before its time.

        A message that is due before the next one is usually over by then, and never comes to the disk. So such
        messages bring a checkpoint only when they are very many: each one that it writes has to be deleted, too.
        """
        return self._forecast.later >= CHECKPOINT_ROWS or self.dirty_rows >= CHECKPOINT_ROWS_MAX

    def hidden_jobs(self) -> frozenset[int]:
        """The numbers of the jobs whose messages nobody is shown: they are open, or being withdrawn."""
        return self.jobs.hidden

    # ------------------------------------------------------------ rows that are only on disk

    def cold(self, record: Record) -> ColdIds | None:
        """Hold a record: pin what it names; return the ids to read from the disk before it can be applied.

        To be called once for every record, in order, as soon as it is in the log (again for the tail after a
        start). The ids returned must be read (ReadEntries) and answered with `entries_read`.

        Raises:
            InvariantViolated: a LEASE without the column `first` names a message that is not in memory.
        """
        return self._residency.cold(record)

    def entries_read(self, entries: Entries, asked: tuple[U64, U64, U16]) -> None:
        """Take the answer of a read that `cold` asked for.

        Args:
            entries: those that are on disk, in any order.
            asked: what `cold` returned.
        """
        self._residency.entries_read(entries, asked)

    def ready(self, record: Record) -> bool:
        """Return whether everything that the record names is in memory: `apply` may run.

        For the next record, after `prepare`.
        """
        return self._residency.ready(record) and (
            record.kind not in name_holds.KINDS or self.name_holds.ready(record)
        )

    def unpin(self, record: Record) -> None:
        """Let go of a record that was cut off the log before it was applied."""
        self._residency.unpin(record)
        self.name_holds.unpin(record)

    def cold_keys(self, record: Record) -> NamesWanted | None:
        """Do the work of `cold` for the unique keys that an INSERT brings; return the keys to read.

        The keys returned must be read (ReadNames) and answered with `names_read`.
        """
        return self.name_holds.cold(record)

    def prepare(self, record: Record) -> tuple[NamesWanted | None, ColdIds | None]:
        """Pin what the next record needs of unique keys and of the messages that bear them; return what to read.

        To be called before `ready`, as often as that is asked.
        """
        if record.kind not in name_holds.KINDS or not self._residency.ready(record):
            return None, None
        return self.name_holds.prepare(record)

    def names_read(self, wanted: NamesWanted, found: dict[bytes, Name], entries: Entries) -> None:
        """Take the answer of a read: the disk's rows of unique keys, and the entries of the messages that bear them."""
        self.name_holds.read(wanted, found, entries)

    def wants_sweep(self) -> tuple[int, int] | None:
        """Return the number of a sweep, and the age before which remembered keys are to be read; None: not now.

        The caller must read them (ReadExpired), and answer with `swept`.
        """
        return self.name_holds.wants_sweep()

    def swept(
        self,
        number: int,
        expired: list[tuple[int, bytes]],
        following: int | None,
        stale: Sequence[tuple[int, bytes]] = (),
    ) -> None:
        """Take the answer of a sweep: the next checkpoint deletes these.

        Args:
            number: of the sweep.
            expired: (until, hash) of keys that are remembered no more.
            following: until when the next one is remembered; None: there is none.
            stale: (until, hash) of rows of the index alone.
        """
        self.name_holds.swept(number, expired, following, stale)

    def wants_hashes(self) -> bytes | None:
        """Return the hash behind which it wants to know of the disk's unique keys; None: not now.

        The caller must read them (ReadHashes), and answer with `hashes_read`.
        """
        return self._names.wants_hashes()

    def hashes_read(self, hashes: bytes, ended: bool) -> None:
        """Take the answer: hashes, one behind the other, and whether there are no more."""
        self._names.hashes_read(hashes, ended)

    def hold(self, ids: ColdIds) -> tuple[Hold, ColdIds | None]:
        """Pin messages by their ids to look at them; return what to read from the disk before `held_rows`.

        The ids returned must be read (ReadEntries) and answered with `entries_read`. The hold must be released.
        """
        return self._residency.hold(ids)

    def held_rows(self, hold: Hold) -> Entries:
        """Return what is held, once nothing of it has to be read any more; state ABSENT for what does not exist."""
        return self._table.take(hold.slots)

    def release(self, hold: Hold) -> None:
        """Let go of what is held."""
        self._residency.release(hold)

    @property
    def hot_rows_max(self) -> int:
        """Number of waiting messages to keep in memory; may be changed at any time."""
        return self._residency.hot_rows_max

    @hot_rows_max.setter
    def hot_rows_max(self, rows: int) -> None:
        if rows != self._residency.hot_rows_max:
            self._residency.hot_rows_max = max(rows, 1)
            self._residency.resize()

    def wants_scan(self) -> ScanWanted | None:
        """Return what to scan when the hot window should grow: the caller must scan.

        From this call until `scanned` a scan counts as under way, and nothing else is wanted.
        """
        return self._residency.wants_scan()

    def scanned(
        self,
        entries: Entries,
        exhausted: bool,
        asked_position: Position,
        looked_to: Position | None = None,
        left_out: frozenset[int] = frozenset(),
        following: bytes | None = None,
        beyond: Sequence[ClassLooked] = (),
    ) -> Entries:
        """Take the answer of a scan: the window grows to the last entry looked at, or over everything.

        Args:
            entries: waiting entries of the disk, in order.
            exhausted: nothing lies behind the last one.
            asked_position: (after_wait_at, after_key) of the scan.
            looked_to: position of the last entry looked at; None: of the last of `entries`.
            left_out: numbers of jobs of which entries were left out.
            following: the next class behind all that were read that has entries; None: there is none.
            beyond: how far other classes than the one asked for first were read.

        Returns:
            The waiting entries that the window gained and that may be delivered, by (wait_at, key). Some may have
            been inside before the window shrank, so a caller that keeps a list of its own must drop repeats.
        """
        return self._residency.scanned(
            entries, exhausted, asked_position, looked_to, left_out, following, beyond
        )

    # ------------------------------------------------------------ apply

    def apply(self, record: Record) -> Applied:
        """Apply the next committed record.

        Returns:
            The answers to its requests, and what changed for dispatch.

        Raises:
            UnknownVersion: this build does not know the record's kind or version; nothing was changed.
            InvariantViolated: the record is not the next one, or is malformed, or was not `ready`.
        """
        self._check_level(record.version, f"record {record.sequence}")
        if record.kind not in self.known_kinds:
            raise UnknownVersion(
                f"record {record.sequence} of partition {self.uid} is of kind {record.kind}, which this build does"
                " not know"
            )
        self._check(record)
        hold = self._residency.take_hold(record)
        keys = self.name_holds.take(record) if record.kind in name_holds.KINDS else None
        self._age_ms += min(max(record.stamp - self.stamp, 0), AGE_STEP_MS)
        self._names.age_ms = self._age_ms
        self.stamp = record.stamp
        self.applied = record.sequence
        self.level = max(self.level, record.version)
        self._tables.expire(self._age_ms, record.stamp)
        if self.groups.forgotten:
            self._window.forget(self.groups.forgotten)
        verdicts, chosen = self._judging.judge(record, self._age_ms)
        applied = Applied()
        outcomes = self._changing.change(record, hold, chosen, self._age_ms, applied)
        if self.bodies.garbage:
            self._live.note_bodies(self.bodies.garbage)
            self.bodies.garbage = []
        if verdicts:
            self._judging.answer(record, verdicts, outcomes, applied)
        if hold is not None:
            self._residency.loosen(hold.slots)
        if keys is not None:
            self.name_holds.applied(record, keys)
        return applied

    def _check_level(self, level: int, what: str) -> None:
        if level > self._build_level:
            raise UnknownVersion(
                f"{what} of partition {self.uid} is of feature level {level}, this build has {self._build_level}: run"
                " the version of the other brokers here"
            )

    def _check(self, record: Record) -> None:
        invariant(
            record.uid == self.uid and record.sequence == self.applied + 1,
            "a record is applied out of turn",
            uid=self.uid,
            applied=self.applied,
            record_uid=record.uid,
            sequence=record.sequence,
        )
        if record.requests:
            rows = 0
            for request in record.requests:  # a generator costs more than all the rest
                rows += request.rows
            invariant(
                rows == record.rows,
                "the requests of a record do not add up to its rows",
                uid=self.uid,
                sequence=record.sequence,
                requests=rows,
                rows=record.rows,
            )

    # ------------------------------------------------------------ reading the state

    def answered(self, request: RequestRef, kind: RecordKind, job: bytes) -> RequestResult | None:
        """Return what a request was answered that has taken effect; None: it has not, or that is not remembered."""
        return self._judging.answered(request, kind, job)

    def rows(self, keys: U64) -> Entries:
        """Return copies of entries; state ABSENT for keys that are not in memory."""
        return self._table.take(self._table.find(keys))

    def leased(self) -> Entries:
        """Return all leased entries, by key."""
        found = self._table.take(self._table.slots_in(State.LEASED))
        return found.take(np.argsort(keys_of(found), kind="stable"))

    def leased_after(self, key: int, most: int) -> Entries:
        """Return the next leased entries by key behind this one, `most` at most."""
        return self._table.take(self._table.slots_after(State.LEASED, key, most))

    def waiting_hot(self) -> Entries:
        """Return all waiting entries in memory inside the hot window, by (wait_at, key)."""
        return in_order(self._window.inside(self._table.take(self._table.slots_in(State.WAITING))))

    def deliverable_hot(self) -> Entries:
        """Return all waiting entries inside the hot window that may be delivered, by (wait_at, key)."""
        return in_order(self._window.deliverable(self._table.take(self._table.slots_in(State.WAITING))))

    @property
    def waiting_by_hour(self) -> Mapping[int, int]:
        """Counts of waiting messages, by hour since 1970; those more than 400 days ahead are left out."""
        return self._forecast.hours

    def forecast(self, from_ms: int, seconds: int) -> list[tuple[int, int]]:
        """Return (second as Unix ms, messages due in it), ascending, only counts > 0, from the second of `from_ms` on.

        Exact up to `known_until_ms`. Beyond that only counts by hour are known: they are spread evenly over the seconds
        that are left of each hour; what waits more than 400 days ahead is left out.
        """
        known, end_ms = self.known_until_ms, from_ms + seconds * 1000
        exact = known is None or known >= end_ms
        hot = self._window.inside(self._table.take(self._table.slots_until(end_ms if exact else 1 << 63)))
        return self._forecast.by_second(hot, None if exact else known, from_ms, seconds)

    @property
    def known_until_ms(self) -> int | None:
        """Up to when seconds are exact: the hot window's end, or the first job that is left out of it; None: all."""
        ends = [self._window.known_until_ms] if self._window.known_until_ms is not None else []
        ends += [job.until for number, job in self.jobs.closed.items() if number in self._window.left_out]
        return min(ends, default=None)

    # ------------------------------------------------------------ checkpoints

    def checkpoint(self) -> SaveCheckpoint | None:
        """Return all rows that changed since the last checkpoint, as one batch to be made durable.

        None when nothing was applied since, or while a checkpoint is in flight.
        """
        if self._saving is not None or self.applied == self._checkpointed:
            return None
        self._table.check()
        save = SaveCheckpoint(self.uid, self.applied, 0, short=self.level >= LEVEL_OF_KINDS)
        self._residency.clean_up()
        marks = self.jobs.wait_from(self._window.left_out, self.low_water)
        marks.append(low_water_of(self._table, self._window, self.stamp))
        self.low_water = save.low_water = min(marks)
        slots = write_rows(save, self._table, self.order)
        if self._live.finished:
            save.finished = joined(self._live.finished)
            self._live.finished = []
            self._live.finished_count = 0
        save.remarks = self._live.remarks.take()
        save.names, save.borne, save.remembered = self._names.changed_rows()
        save.tables = self._tables.changed_rows()
        save.summary = Summary(
            self.stamp, self._live.scheduled, self._forecast.far, self._age_ms, self.jobs.given,
            self.level, self._live.dead, self._names.count,
        ).pack()  # fmt: skip
        self._saving = (self.applied, slots)
        self._checkpointed = self.applied
        return save

    def checkpoint_saved(self, applied: int) -> None:
        """Note that the checkpoint in flight is durable: rows may leave memory now."""
        invariant(
            self._saving is not None and self._saving[0] == applied,
            "a checkpoint is durable that is not in flight",
            uid=self.uid,
            applied=applied,
            saving=self._saving and self._saving[0],
        )
        assert self._saving is not None
        slots = self._saving[1]
        self._saving = None
        self._live.remarks.saved()
        self._names.saved()
        self._residency.checkpoint_saved(slots)
        self.name_holds.forget()

    # ------------------------------------------------------------ comparing replicas

    def export(self) -> dict[str, object]:
        """Return the state in canonical form, of plain values only.

        "entries" (sorted tuples of all fields) and "tombstones" (keys that ended, though the disk
        may still hold them) say what memory knows; entries that only the disk has are to be added from there.
        So it is with "names" (hash, packed row; None: nobody bears the key).
        "tombstones", "remarks" and "window" differ between replicas; all the rest, entries completed, must not.
        """
        alive = self._table.rows[self._table.state != State.ABSENT]
        ended = (self._table.state == State.ABSENT) & (self._table.disk != OnDisk.FREE)
        ended &= self._table.disk != OnDisk.UNKNOWN
        return {
            "applied": self.applied,
            "stamp": self.stamp,
            "level": self.level,
            "age": self._age_ms,
            "scheduled": self._live.scheduled,
            "leased": self._live.leased,
            "dead": self._live.dead,
            "remarks": self._live.remarks.export(),
            "names": self._names.export(),
            "entries": canonical(alive),
            "tombstones": sorted(keys_of(self._table.rows[ended]).tolist()),
            "window": self._window.export(),
            "far": self._forecast.far,
            "jobs_given": self.jobs.given,
            **self._tables.export(),
        }

"""The committed records of a mesh, and the state that results when they are applied once, in memory.

The common result of all replicas is compared with a naive reference of the rules (`naive`), record by record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from dueq.core.ports.entry import NO_ENTRIES
from dueq.core.state.job import Job
from dueq.core.state.order import TIMELINE, Order
from dueq.core.state.timeline import Timeline
from dueq_chaos.sim.judging.fates import Fate, Fates
from dueq_chaos.sim.judging.history import MessageKey
from dueq_chaos.sim.judging.recurrence_course import Course
from dueq_chaos.sim.reference.naive import Naive
from dueq_chaos.sim.reference.naive_entry import Told
from dueq_chaos.sim.reference.twins import deed_differs, state_differs
from dueq_codecs.frames import encode_record
from dueq_codecs.records import JobState, Record, RecordKind

ANY_LEVEL: Final = 1_000
"""Of an observer of a mesh from outside: it applies the records of every build."""
_HOT_ROWS: Final = 1 << 30
Summary = tuple[int, int, int, int]
"""(stamp, waiting, leased, live messages) after a record."""


class _Partition:
    """One partition's committed records.

    Attributes:
        records: by sequence, from 1 without gaps as far as `reference` has come.
        end: the last of them.
        summaries: of the reference after each record.
        consumers: of each LEASE, the consumer of each row.
        level: the largest version of any record, which is the partition's feature level.
        decided: job -> the result of the last JOB record about it, also when the job is forgotten.
    """

    def __init__(self, uid: int, place: tuple[int, int] = (0, 1), order: Order = TIMELINE) -> None:
        self.uid, self.order = uid, order
        self.records: dict[int, Record] = {}
        self.epochs: dict[int, int] = {}
        self.end = 0
        self.summaries: dict[int, Summary] = {0: (0, 0, 0, 0)}
        self.leases: dict[int, dict[tuple[int, int], bytes]] = {}
        self.decided: dict[bytes, JobState] = {}
        self.level = 1
        self.place = place
        self.reference = self.begin()
        self.naive = Naive(place)
        self.course = Course()
        self.fates = Fates()

    def begin(self) -> Timeline:
        """Return the state before the first record."""
        return Timeline(self.uid, None, _HOT_ROWS, place=self.place, order=self.order, build_level=ANY_LEVEL)


class Ledger:
    """Of all partitions. Records are those that some replica has counted as committed.

    Attributes:
        fired: told of each new message of a recurrence: key, payload, due, the instant in its id and its rank.
        taken_back: told of each that was taken back, and of the token of the lease that it had; 0: it waited.
    """

    def __init__(self) -> None:
        self._partitions: dict[int, _Partition] = {}
        self.fired: Callable[[MessageKey, bytes, int, int, int], None] = lambda *message: None
        self.taken_back: Callable[[MessageKey, int], None] = lambda key, token: None

    def _of(self, uid: int) -> _Partition:
        found = self._partitions.get(uid)
        if found is None:
            found = self._partitions[uid] = _Partition(uid)
        return found

    def opened(self, uid: int, place: tuple[int, int], order: Order) -> None:
        """A replica was seen: this is the partition's place in its topic, how many that has, and the topic's order.

        Somebody may have asked about the partition before any replica of it was there.
        """
        known = self._partitions.get(uid)
        if known is None or (not known.records and (known.place, known.order) != (place, order)):
            self._partitions[uid] = _Partition(uid, place, order)

    def epochs(self, uid: int) -> dict[int, int]:
        """The epoch of each committed record."""
        return self._of(uid).epochs

    def end(self, uid: int) -> int:
        """The last committed record, 0 while there is none."""
        return self._of(uid).end

    def record(self, uid: int, sequence: int) -> Record | None:
        """A committed record; None: no replica has shown it yet."""
        return self._of(uid).records.get(sequence)

    def encoded(self, uid: int, sequence: int) -> bytes | None:
        """A committed record's bytes; None: no replica has shown it yet."""
        record = self._of(uid).records.get(sequence)
        return encode_record(record) if record is not None else None

    def brought(self, uid: int) -> list[int]:
        """The sequences of the committed records that brought a shared body."""
        records = self._of(uid).records
        return [at for at, record in records.items() if record.kind == RecordKind.BODY and len(record.size)]

    def fate(self, key: MessageKey) -> Fate:
        """Return the fate of a message: an object that changes as the message does."""
        return self._of(key[0]).fates.of(key[1] << 16 | key[2])

    def ends(self, uid: int, record: Record, applied: int) -> None:
        """A leader that had applied all up to here ends a pass by this record."""
        self._of(uid).fates.ends(record, applied)

    def due_of(self, key: MessageKey) -> int:
        """The instant at which a message was inserted to be due."""
        record = self._of(key[0]).records.get(key[1])
        return int(record.due[key[2]]) if record is not None and key[2] < len(record.due) else 0

    def version_of(self, key: MessageKey) -> int:
        """A message's present version."""
        entry = self.naive(key[0]).live.get(key[1] << 16 | key[2])
        return max(entry.version, entry.sequence) if entry is not None else key[1]

    def had_version(self, key: MessageKey, version: int) -> bool:
        """Whether a message had this version at some time."""
        if version == key[1]:
            return True
        record = self._of(key[0]).records.get(version)
        named = (
            zip(record.target_sequence.tolist(), record.target_row.tolist(), strict=True) if record else ()
        )
        return key[1:] in named

    def row_differs(self, key: tuple[int, int, int], payload: bytes, due_ms: int) -> str:
        """Compare an acknowledged insert with the record of which its answer speaks."""
        uid, sequence, row = key
        record = self._of(uid).records.get(sequence)
        if record is None or record.kind != RecordKind.INSERT or row >= record.rows:
            return f"acknowledged as a row of a committed INSERT, which is {record and record.kind.name}"
        if int(record.due[row]) != due_ms or int(record.size[row]) < len(payload):
            return f"acknowledged as due {due_ms}, and inserted as due {int(record.due[row])}"
        return ""

    def reference(self, uid: int) -> Timeline:
        """The state after every committed record."""
        return self._of(uid).reference

    def naive(self, uid: int) -> Naive:
        """The same by the naive reference of the rules."""
        return self._of(uid).naive

    def decided(self, uid: int, job: bytes) -> JobState | None:
        """A partition's decision about a job, own or learnt, though it may have forgotten it since."""
        return self._of(uid).decided.get(job)

    def after(self, uid: int, sequence: int) -> Timeline | None:
        """The state after a committed record; None: not all records up to it are known."""
        partition = self._of(uid)
        if sequence > partition.reference.applied:
            return None
        timeline = partition.begin()
        for at in range(1, sequence + 1):
            _hold(timeline, partition.records[at])
            timeline.apply(partition.records[at])
        return timeline

    def committed(self, uid: int, record: Record) -> str:
        """A replica counts a record as committed; returns what is wrong with that."""
        partition = self._of(uid)
        known = partition.records.get(record.sequence)
        if known is None:
            partition.records[record.sequence] = record
            partition.epochs[record.sequence] = record.epoch
            partition.end = max(partition.end, record.sequence)
            return self._apply(partition)
        if known is record or encode_record(known) == encode_record(record):
            return ""
        return (
            f"record {record.sequence} was committed as {known.kind.name} of epoch {known.epoch} and again as"
            f" {record.kind.name} of epoch {record.epoch}: invariant 1"
        )

    def _apply(self, partition: _Partition) -> str:
        reference, naive = partition.reference, partition.naive
        while (record := partition.records.get(reference.applied + 1)) is not None:
            if record.kind == RecordKind.LEASE:
                partition.leases[record.sequence] = _grants(record)
            _hold(reference, record)
            partition.course.before(record, naive)
            partition.fates.before(record, naive)
            applied, told = reference.apply(record), naive.apply(record)
            partition.summaries[record.sequence] = _summary(reference)
            partition.level = max(partition.level, record.version)
            if reference.level != partition.level:
                return f"record {record.sequence}: level {reference.level}, {partition.level} was reached"
            if applied.job is not None:
                wrong = _goes_back(partition, applied.job)
                if wrong:
                    return wrong
                partition.decided[applied.job.key] = applied.job.state
            wrong = deed_differs(record, applied, reference, told, naive)
            if wrong:
                return f"apply differs from the rules: {wrong}"
            if wrong := self._recurred(partition, record, told) or partition.fates.after(record, naive):
                return wrong
        return ""

    def _recurred(self, partition: _Partition, record: Record, told: Told) -> str:
        """Note what a record has done to messages of recurrences; returns what is wrong with that."""
        deeds = partition.course.after(record, partition.naive, told)
        for key, payload, due_ms, first, rank in deeds.fired:
            self.fired((partition.uid, key >> 16, key & 0xFFFF), payload, due_ms, first, rank)
        for key, token in deeds.taken_back:
            self.taken_back((partition.uid, key >> 16, key & 0xFFFF), token)
        return f"p{partition.uid}, record {record.sequence}: {deeds.wrong}" if deeds.wrong else ""

    def rules_differ(self, uid: int) -> str:
        """Compare the whole state after every committed record with that of the naive reference."""
        partition = self._of(uid)
        wrong = state_differs(partition.reference, partition.naive)
        return f"apply differs from the rules: {wrong}" if wrong else ""

    def lease(self, uid: int, token: int) -> Record | None:
        """The committed LEASE of this sequence."""
        record = self._of(uid).records.get(token)
        return record if record is not None and record.kind == RecordKind.LEASE else None

    def holder(self, uid: int, token: int, sequence: int, row: int) -> bytes:
        """The consumer to which a committed LEASE grants the message; b"" if there is none."""
        return self._of(uid).leases.get(token, {}).get((sequence, row), b"")

    def state_differs(self, uid: int, timeline: Timeline) -> str:
        """Compare a replica's state with the reference's after the same record."""
        expected = self._of(uid).summaries.get(timeline.applied)
        found = _summary(timeline)
        if expected is None or expected == found:
            return ""
        return (
            f"after record {timeline.applied} (stamp, waiting, leased, live) is {found}, should be {expected}"
        )


def _hold(timeline: Timeline, record: Record) -> None:
    """Nothing is on a disk: what is not in memory is gone, or never was."""
    asked = timeline.cold(record)
    if asked is not None:
        timeline.entries_read(NO_ENTRIES, asked)


def _goes_back(partition: _Partition, job: Job) -> str:
    """A final decision stays, even when it was forgotten; only a committed job may still be cancelled."""
    before = partition.decided.get(job.key, JobState.OPEN)
    if before in (JobState.OPEN, job.state) or job.state == JobState.CANCELLED:
        return ""
    return f"job {job.key.hex()} of partition {partition.uid} was {before.name}, and is {job.state.name}"


def _grants(record: Record) -> dict[tuple[int, int], bytes]:
    columns = zip(
        record.target_sequence.tolist(), record.target_row.tolist(),
        np.asarray(record.consumer).tolist(), strict=True,
    )  # fmt: skip
    return {(sequence, row): record.consumers[consumer] for sequence, row, consumer in columns}


def _summary(timeline: Timeline) -> Summary:
    return timeline.stamp, timeline.scheduled_count, timeline.leased_count, timeline.live_count

"""Shared bodies, record by record."""

from __future__ import annotations

import numpy as np

from dueq.core.ports.persistence import RecoveredPartition
from dueq.core.state.timeline import Timeline
from dueq.limits import BODY_GRACE_MS
from dueq_codecs.messages import Code
from dueq_codecs.records import LEVEL_OF_KINDS, Outcome, Record, RecordKind, RequestRef
from tests.unit.core.state.test_timeline import ALICE, NOON, UID, Story, u64

NAME = b"n" * 32
MINUTE = 60_000


class Bodies(Story):
    """A story with one body."""

    def body(self, grace_ms: int | None = None, *, size: int = 0, number: int = 1) -> int:
        """Bring it, or keep it; returns the outcome."""
        record = self.record(RecordKind.BODY, shared=NAME, shared_size=20_000, version=LEVEL_OF_KINDS)
        if size:
            record.size, record.crc = np.array([size], np.uint32), np.array([7], np.uint32)
        if grace_ms is not None:
            record.amount_ms = u64(grace_ms)
        record.requests = (RequestRef(ALICE, number, number, 1),)
        return int(self.apply(record).results[0].outcomes[0])

    def share(self, rows: int, number: int, size: int = 20_000) -> Code:
        """Insert messages that name it."""
        record = self.record(RecordKind.INSERT, shared=NAME, shared_size=size, version=LEVEL_OF_KINDS)
        record.due = np.full(rows, NOON, np.uint64)
        record.size = np.full(rows, size + 3, np.uint32)
        record.crc = np.zeros(rows, np.uint32)
        record.requests = (RequestRef(ALICE, number, number, rows),)
        return self.apply(record).results[0].code

    def cancel(self) -> None:
        """Let all messages end."""
        waiting = self.timeline.waiting_hot()
        record = self.named(RecordKind.CANCEL, waiting)
        record.token = np.zeros(len(waiting), np.uint64)
        self.apply(record)

    def age(self, age_ms: int) -> None:
        """Let the partition grow older, a minute a record."""
        until = self.stamp + age_ms
        while self.stamp < until:
            self.stamp = min(self.stamp + MINUTE, until)
            self.apply(self.record(RecordKind.BARRIER))

    def kept(self) -> bool:
        return NAME in self.timeline.bodies.by_name

    def finished(self) -> list[int]:
        """Sequences of what a checkpoint calls finished."""
        save = self.timeline.checkpoint()
        assert save is not None
        self.timeline.checkpoint_saved(save.applied)
        found: list[int] = save.finished["sequence"].tolist()
        return found


def test_a_body_is_kept_while_messages_name_it_and_then_for_its_grace() -> None:
    story = Bodies()
    assert story.body(size=20_000) == Outcome.DONE
    assert story.share(3, 2) == Code.OK
    story.age(BODY_GRACE_MS + MINUTE)
    assert story.kept(), "it has messages"
    story.cancel()
    assert story.kept(), "it goes with the next record"
    story.age(MINUTE)
    assert not story.kept()
    assert story.finished() == [2, 2, 2, 1]


def test_a_body_goes_when_its_messages_end_together_with_others_that_have_none() -> None:
    """Else its bytes stay on the disk for good."""
    story = Bodies()
    story.body(size=20_000)
    story.insert(NOON, NOON)
    assert story.share(2, 2) == Code.OK
    story.cancel()
    assert story.timeline.bodies.by_name[NAME].messages == 0
    story.age(BODY_GRACE_MS + MINUTE)
    assert not story.kept()


def test_naming_it_begins_its_grace_anew_and_ending_the_grace_lets_it_go() -> None:
    story = Bodies()
    story.body(size=20_000)
    story.age(BODY_GRACE_MS - MINUTE)
    assert story.share(1, 2) == Code.OK
    story.cancel()
    story.age(BODY_GRACE_MS - MINUTE)
    assert story.kept()
    assert story.body(0, number=3) == Outcome.DONE
    story.age(1)
    assert not story.kept()


def test_an_insert_that_names_what_is_not_kept_is_refused_and_changes_nothing() -> None:
    story = Bodies()
    assert story.share(2, 1) == Code.UNKNOWN_BODY
    assert story.body(number=2) == Outcome.NOT_FOUND
    assert story.timeline.live_count == 0
    assert story.finished() == [1, 1]
    story.body(size=20_000, number=3)
    assert story.share(2, 4, size=19_999) == Code.UNKNOWN_BODY
    assert story.share(2, 5) == Code.OK
    assert story.timeline.bodies.by_name[NAME].messages == 2


def test_only_messages_that_name_it_are_counted_also_where_others_change_with_them() -> None:
    story = Bodies()
    story.body(size=20_000)
    story.share(3, 2)
    story.insert(NOON, NOON)
    story.cancel()
    assert story.timeline.bodies.by_name[NAME].messages == 0
    assert story.timeline.live_count == 0


def test_a_request_that_is_new_beside_one_that_is_repeated_names_the_body() -> None:
    """Else the body would go while messages wait that have no other payload."""
    story = Bodies()
    story.body(size=20_000)
    story.share(1, 2)
    record = story.record(RecordKind.INSERT, shared=NAME, shared_size=20_000, version=LEVEL_OF_KINDS)
    record.due, record.size = np.full(3, NOON, np.uint64), np.full(3, 20_003, np.uint32)
    record.crc = np.zeros(3, np.uint32)
    record.requests = (RequestRef(ALICE, 2, 2, 1), RequestRef(ALICE, 3, 3, 2))
    assert [result.code for result in story.apply(record).results] == [Code.OK, Code.OK]
    assert story.timeline.bodies.by_name[NAME].messages == story.timeline.live_count == 3


def test_what_is_brought_again_is_garbage_at_once() -> None:
    story = Bodies()
    story.body(size=20_000)
    story.body(size=20_000, number=2)
    story.body(size=20_000, number=2)
    assert story.timeline.bodies.by_name[NAME].number == 1
    assert story.finished() == [2, 3]


def test_a_repeated_insert_is_answered_though_its_body_is_gone() -> None:
    story = Bodies()
    story.body(size=20_000)
    story.share(1, 2)
    story.cancel()
    story.body(0, number=3)
    story.age(1)
    assert not story.kept()
    assert story.share(1, 2) == Code.OK
    assert story.timeline.live_count == 0


def test_recovery_finds_bodies_and_what_names_them() -> None:
    story = Bodies()
    story.body(size=20_000)
    story.share(2, 2)
    save = story.timeline.checkpoint()
    assert save is not None
    recovered = RecoveredPartition(
        UID, "t", 1, 0, save.applied, save.applied + 1, save.applied, [(0, 0)], [], 0,
        save.put[:0], save.tables, save.summary, [],
    )  # fmt: skip
    again = Timeline(UID, recovered)
    assert again.bodies.export() == story.timeline.bodies.export()
    assert again.bodies.idle_until_ms is None


def test_time_passes_by_any_record() -> None:
    story = Bodies()
    story.body(MINUTE, size=20_000)
    story.stamp += MINUTE
    story.apply(Record(RecordKind.BARRIER, UID, story.timeline.applied + 1, 1, story.stamp, LEVEL_OF_KINDS))
    assert not story.kept()


def test_a_body_that_is_forgotten_leaves_the_disk() -> None:
    """After a restart it would be named by new messages, and its bytes are gone."""
    story = Bodies()
    story.body(size=20_000)
    bodies = story.timeline.bodies
    [saved] = bodies.changed_rows()
    story.age(BODY_GRACE_MS + MINUTE)
    assert not story.kept()
    assert [(row.key, row.value) for row in bodies.changed_rows()] == [(saved.key, None)]

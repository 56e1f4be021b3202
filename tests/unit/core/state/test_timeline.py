"""The timeline's rules one by one; `tests/property/test_timeline_twin.py` has them all at once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dueq.core.ports.entry import FLAG_UPLOAD, NO_ENTRIES, Entries, State, keys_of
from dueq.core.ports.persistence import RecoveredPartition, SaveCheckpoint
from dueq.core.ports.tables import TableRow
from dueq.core.state import timeline as timeline_module
from dueq.core.state.applied import Applied
from dueq.core.state.dedup import DedupLimits
from dueq.core.state.timeline import Timeline
from dueq.errors import InvariantViolated, UnknownVersion
from dueq.limits import CHECKPOINT_MS
from dueq_codecs.messages import Code
from dueq_codecs.records import (
    FEATURE_LEVEL,
    LEVEL_OF_KINDS,
    JobAction,
    Outcome,
    Record,
    RecordKind,
    RequestRef,
)

UID = 3
NOON = 1_800_000_000_000
ALICE, BOB = b"a" * 16, b"b" * 16


def u64(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


class Story:
    """A timeline and the records that it is told, with literal times."""

    def __init__(self, timeline: Timeline | None = None, stamp: int = NOON) -> None:
        self.timeline = timeline or Timeline(UID)
        self.stamp = stamp
        self.number = 0

    def record(self, kind: RecordKind, **columns: object) -> Record:
        return Record(kind, UID, self.timeline.applied + 1, 1, self.stamp, **columns)  # type: ignore[arg-type]

    def apply(self, record: Record) -> Applied:
        assert self.timeline.cold(record) is None
        assert self.timeline.ready(record)
        return self.timeline.apply(record)

    def insert(
        self, *dues: int, request: RequestRef | None = None, sizes: list[int] | None = None
    ) -> Applied:
        count = len(dues)
        size = np.array(sizes or [100] * count, np.uint32)
        record = self.record(
            RecordKind.INSERT, due=u64(*dues), size=size, crc=np.arange(count, dtype=np.uint32)
        )
        record.requests = (request,) if request else ()
        return self.apply(record)

    def named(self, kind: RecordKind, entries: Entries, **columns: object) -> Record:
        record = self.record(kind, **columns)
        record.first = entries["first"].copy()
        record.target_sequence = entries["sequence"].copy()
        record.target_row = entries["row"].copy()
        if kind != RecordKind.LEASE and not len(record.token):
            record.token = entries["token"].copy()
        return record

    def lease_record(self, entries: Entries) -> Record:
        return self.named(
            RecordKind.LEASE, entries, consumers=(ALICE,), consumer=np.zeros(len(entries), np.uint16),
            lease_ms=u64(30_000),
        )  # fmt: skip

    def lease(self, entries: Entries) -> Entries:
        return self.apply(self.lease_record(entries)).leased

    def request(self, kind: RecordKind, entries: Entries, **columns: object) -> list[Outcome]:
        """Apply a change as a client's request and return its outcomes."""
        self.number += 1
        record = self.named(kind, entries, **columns)
        record.requests = (RequestRef(BOB, self.number, self.number, len(entries)),)
        self.last = self.apply(record)
        return [Outcome(value) for value in self.last.results[0].outcomes]


class Shelf:
    """The waiting and leased rows of one partition on disk."""

    def __init__(self) -> None:
        self.rows: dict[int, Entries] = {}
        self.last: SaveCheckpoint | None = None

    def save(self, timeline: Timeline) -> None:
        save = timeline.checkpoint()
        assert save is not None
        for key in [*save.unwait[:, 1].tolist(), *save.unlease.tolist()]:
            self.rows.pop(key, None)
        for at, key in enumerate(keys_of(save.put).tolist()):
            self.rows[key] = save.put[at : at + 1].copy()
        self.last = save
        timeline.checkpoint_saved(save.applied)

    def recover(self, **changes: object) -> RecoveredPartition:
        save = self.last
        assert save is not None
        leased = [row for row in self.rows.values() if row["state"][0] == State.LEASED]
        tables = {tag: [row for row in rows if row.value is not None] for tag, rows in save.tables.items()}
        return RecoveredPartition(
            UID, "topic", 1, 0, save.applied, save.applied + 1, save.applied, [(0, 0)], [], save.low_water,
            np.concatenate(leased) if leased else NO_ENTRIES, tables, save.summary, [],
        )  # fmt: skip


def cold_story(hot_rows_max: int = 2) -> tuple[Story, Shelf, Entries]:
    """Return a story of ten messages of which most are only on disk, and all of them as they were inserted."""
    story, shelf = Story(Timeline(UID, hot_rows_max=hot_rows_max)), Shelf()
    rows = story.insert(*(NOON + 1000 * at for at in range(1, 11))).waiting
    shelf.save(story.timeline)
    assert story.timeline.memory_rows < 5
    return story, shelf, rows


# ---------------------------------------------------------------- waiting


def test_a_message_waits_until_due_or_from_the_stamp_if_that_is_later() -> None:
    waiting = Story().insert(NOON + 5, NOON - 5, 0).waiting
    assert waiting["wait_at"].tolist() == [NOON + 5, NOON, NOON]
    assert waiting["first"].tolist() == [NOON + 5, NOON, NOON]
    assert waiting["due"].tolist() == [NOON + 5, NOON - 5, 0]


def test_the_low_water_mark_is_never_above_the_stamp_nor_above_what_waits() -> None:
    story, shelf = Story(), Shelf()
    story.insert(NOON + 86_400_000)
    shelf.save(story.timeline)
    assert story.timeline.low_water == NOON
    story.stamp = NOON - 2000  # a leader whose clock is behind
    story.insert(0)
    shelf.save(story.timeline)
    assert story.timeline.low_water == NOON - 2000


def test_a_lease_that_is_released_waits_no_earlier_than_its_record() -> None:
    story = Story()
    leased = story.lease(story.insert(NOON).waiting)
    story.stamp = NOON + 700
    story.request(RecordKind.RELEASE, leased)
    assert story.last.waiting["wait_at"].tolist() == [NOON + 700]
    assert story.last.waiting["attempt"].tolist() == [0]


def test_a_message_moved_away_and_back_to_its_first_instant_is_where_it_was() -> None:
    story, shelf = Story(), Shelf()
    row = story.insert(NOON + 50).waiting
    shelf.save(story.timeline)
    assert story.request(RecordKind.MOVE, row, due=u64(NOON + 90)) == [Outcome.DONE]
    shelf.save(story.timeline)
    assert shelf.last is not None
    assert shelf.last.unwait.tolist() == [[NOON + 50, 1 << 16, NOON + 50]]
    assert story.request(RecordKind.MOVE, row, due=u64(NOON + 50)) == [Outcome.DONE]
    shelf.save(story.timeline)
    assert shelf.last.unwait.tolist() == [[NOON + 90, 1 << 16, NOON + 50]]
    assert shelf.last.put["wait_at"].tolist() == [NOON + 50]


# ---------------------------------------------------------------- leases


def test_only_waiting_messages_are_leased() -> None:
    story = Story()
    rows = story.insert(NOON, NOON).waiting
    story.request(RecordKind.CANCEL, rows[:1])
    applied = story.apply(story.lease_record(rows))
    assert applied.leased["row"].tolist() == [1]
    assert applied.leased["token"].tolist() == [3]
    assert applied.leased["attempt"].tolist() == [1]
    assert applied.refused.tolist() == [1 << 16]


def test_a_stale_token_settles_nothing() -> None:
    story = Story()
    first = story.lease(story.insert(NOON).waiting)
    story.request(RecordKind.EXPIRE, first)
    second = story.lease(first)
    for kind, columns in [
        (RecordKind.ACK, {}), (RecordKind.RELEASE, {}), (RecordKind.EXPIRE, {}),
        (RecordKind.NACK, {"amount_ms": u64(0)}), (RecordKind.EXTEND, {"amount_ms": u64(9000)}),
    ]:  # fmt: skip
        assert story.request(kind, first, **columns) == [Outcome.STALE]
    assert story.timeline.leased().tobytes() == second.tobytes()
    assert second["attempt"].tolist() == [2]


def test_an_unpushed_lease_is_revoked_only_by_its_own_token() -> None:
    story = Story()
    leased = story.lease(story.insert(NOON, NOON, NOON).waiting)
    outcomes = story.request(RecordKind.CANCEL, leased, token=u64(2, 0, 1))
    assert outcomes == [Outcome.DONE, Outcome.LEASED, Outcome.LEASED]
    assert story.last.ended["row"].tolist() == [0]
    assert story.last.ended["token"].tolist() == [2]
    assert story.timeline.leased_count == 2


def test_a_revoked_lease_does_not_count_as_an_attempt() -> None:
    story = Story()
    leased = story.lease(story.insert(NOON).waiting)
    assert story.request(RecordKind.MOVE, leased, due=u64(NOON + 9000)) == [Outcome.DONE]
    assert story.last.waiting["attempt"].tolist() == [0]
    assert story.last.waiting["token"].tolist() == [0]


def test_a_refused_message_comes_back_after_its_delay_but_never_before_due() -> None:
    story = Story()
    leased = story.lease(story.insert(NOON, NOON + 9000).waiting)
    story.request(RecordKind.NACK, leased, amount_ms=u64(5000, 5000))
    assert story.last.waiting["wait_at"].tolist() == [NOON + 5000, NOON + 9000]
    assert story.last.waiting["attempt"].tolist() == [1, 1]


def test_an_id_with_another_first_instant_names_nothing() -> None:
    story = Story()
    row = story.insert(NOON + 5).waiting
    forged = row.copy()
    forged["first"] += 1
    record = story.named(RecordKind.CANCEL, forged)
    record.requests = (RequestRef(BOB, 1, 1, 1),)
    assert story.apply(record).results[0].outcomes.tolist() == [Outcome.NOT_FOUND]
    assert story.timeline.scheduled_count == 1


def test_one_message_twice_in_a_request_is_done_once() -> None:
    story = Story()
    row = story.insert(NOON + 5).waiting
    twice = np.concatenate((row, row))
    assert story.request(RecordKind.CANCEL, twice) == [Outcome.DONE, Outcome.NOT_FOUND]
    assert story.timeline.live_count == 0


# ---------------------------------------------------------------- payloads


def test_places_follow_the_blocks_of_the_record() -> None:
    record = Record(
        RecordKind.INSERT, UID, 1, 1, NOON, due=u64(0, 0, 0, 0),
        size=np.array([20_000, 10_000, 5_000, 900_000], np.uint32), crc=np.zeros(4, np.uint32),
        upload=u64(0, 0, 0, 77),
    )  # fmt: skip
    rows = Story().apply(record).waiting
    assert rows["place"].tolist() == [0, 20_000, 2 << 32, 77]
    assert rows["block_rows"].tolist() == [2, 2, 1, 1]
    assert rows["flags"].tolist() == [0, 0, 0, FLAG_UPLOAD]


def test_what_ends_between_two_checkpoints_touches_the_disk_as_garbage_only() -> None:
    story = Story()
    request = RequestRef(ALICE, 1, 5, 2)
    leased = story.lease(story.insert(NOON, NOON, request=request).waiting)
    story.request(RecordKind.ACK, leased)
    story.insert(NOON, NOON, request=request)  # a repeat: its payloads are garbage at once
    save = story.timeline.checkpoint()
    assert save is not None
    assert not len(save.put)
    assert not len(save.unwait)
    assert not len(save.unlease)
    assert keys_of(save.finished).tolist() == [1 << 16, 1 << 16 | 1, 4 << 16, 4 << 16 | 1]
    assert story.timeline.memory_rows == 0


# ---------------------------------------------------------------- deduplication


@pytest.mark.parametrize("batch", [1, 64], ids=["small records", "large ones"])
def test_messages_that_wait_past_the_next_checkpoint_bring_it_and_soon_due_ones_only_in_great_number(
    monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(timeline_module, "CHECKPOINT_ROWS", 128)
    monkeypatch.setattr(timeline_module, "CHECKPOINT_ROWS_MAX", 512)
    story, shelf = Story(), Shelf()

    def inserted(wait_ms: int) -> int:
        count = 0
        while not story.timeline.wants_checkpoint:
            story.insert(*[NOON + wait_ms] * batch)
            count += batch
        return count

    assert inserted(CHECKPOINT_MS + 1) == 128
    shelf.save(story.timeline)
    assert not story.timeline.wants_checkpoint
    assert inserted(CHECKPOINT_MS) == 512


def test_a_repeated_request_gets_the_first_answer_and_does_nothing() -> None:
    story = Story()
    request = RequestRef(ALICE, 7, 1234, 2)
    first = story.insert(NOON, NOON, request=request).results[0]
    story.stamp += 5
    again = story.insert(NOON, NOON, request=request).results[0]
    assert (again.code, again.sequence, again.row, again.stamp) == (Code.OK, 1, 0, NOON)
    assert again.repeated
    assert not first.repeated
    assert story.timeline.live_count == 2


def test_an_earlier_number_that_comes_later_still_takes_effect() -> None:
    story = Story()
    story.insert(NOON, request=RequestRef(ALICE, 7, 1, 1))
    result = story.insert(NOON, request=RequestRef(ALICE, 6, 2, 1)).results[0]
    assert result.code == Code.OK
    assert not result.repeated
    assert story.timeline.live_count == 2


def test_one_number_for_two_contents_is_refused() -> None:
    story = Story()
    story.insert(NOON, request=RequestRef(ALICE, 7, 1, 1))
    assert story.insert(NOON, request=RequestRef(ALICE, 7, 2, 1)).results[0].code == Code.SEQUENCE_REUSED
    assert story.timeline.live_count == 1


def test_below_the_window_the_outcome_is_unknown() -> None:
    story = Story(Timeline(UID, dedup_limits=DedupLimits(window=2)))
    for number in (5, 6, 7):
        story.insert(NOON, request=RequestRef(ALICE, number, number, 1))
    assert story.insert(NOON, request=RequestRef(ALICE, 5, 5, 1)).results[0].code == Code.OUTCOME_UNKNOWN
    assert story.insert(NOON, request=RequestRef(ALICE, 6, 6, 1)).results[0].repeated
    assert story.timeline.live_count == 3


def test_answers_leave_by_the_stamp_but_an_active_client_never_does_them_again() -> None:
    story = Story(Timeline(UID, dedup_limits=DedupLimits(age_ms=1000)))
    story.insert(NOON, request=RequestRef(ALICE, 1, 1, 1))
    story.stamp += 900
    story.insert(NOON, request=RequestRef(ALICE, 2, 2, 1))
    story.stamp += 200
    assert story.insert(NOON, request=RequestRef(ALICE, 1, 1, 1)).results[0].code == Code.OUTCOME_UNKNOWN
    assert story.insert(NOON, request=RequestRef(ALICE, 2, 2, 1)).results[0].repeated


def test_a_leader_whose_clock_is_an_hour_off_makes_nobody_forget_what_was_done() -> None:
    """The first leader's clock is behind; the next one's is right, and the request comes again."""
    story = Story()
    story.insert(NOON, request=RequestRef(ALICE, 1, 1, 1))
    story.stamp += 3_600_000
    assert story.insert(NOON, request=RequestRef(ALICE, 1, 1, 1)).results[0].repeated
    assert story.timeline.live_count == 1


def test_a_request_twice_in_one_record_is_answered_twice_and_done_once() -> None:
    story = Story()
    record = story.record(
        RecordKind.INSERT, due=u64(0, 0), size=np.ones(2, np.uint32), crc=np.ones(2, np.uint32)
    )
    record.requests = (RequestRef(ALICE, 1, 1, 1), RequestRef(ALICE, 1, 1, 1))
    results = story.apply(record).results
    assert [result.repeated for result in results] == [False, True]
    assert [result.row for result in results] == [0, 0]
    assert story.timeline.live_count == 1


def test_answers_survive_a_restart() -> None:
    story, shelf = Story(), Shelf()
    row = story.insert(NOON + 5).waiting
    ghost = row.copy()
    ghost["row"] = 9
    both = np.concatenate((row, ghost))
    record = story.named(RecordKind.CANCEL, both)
    record.requests = (RequestRef(ALICE, 1, 99, 2),)
    first = story.apply(record).results[0]
    shelf.save(story.timeline)
    again = Story(Timeline(UID, shelf.recover()))
    record = again.named(RecordKind.CANCEL, both)
    record.requests = (RequestRef(ALICE, 1, 99, 2),)
    result = again.apply(record).results[0]
    assert result.outcomes.tolist() == first.outcomes.tolist() == [Outcome.DONE, Outcome.NOT_FOUND]
    assert result.repeated


# ---------------------------------------------------------------- what is only on disk


def test_a_cold_message_is_read_before_its_record_is_applied() -> None:
    story, shelf, rows = cold_story()
    record = story.named(RecordKind.MOVE, rows[8:9], due=u64(NOON + 1))
    asked = story.timeline.cold(record)
    assert asked is not None
    assert [column.tolist() for column in asked] == [[NOON + 9000], [1], [8]]
    assert not story.timeline.ready(record)
    with pytest.raises(InvariantViolated, match="before its entries were read"):
        story.timeline.apply(record)
    story.timeline.entries_read(shelf.rows[1 << 16 | 8], asked)
    assert story.timeline.ready(record)
    assert story.timeline.apply(record).waiting["wait_at"].tolist() == [NOON + 1]


def test_two_records_that_name_one_cold_message_need_one_read() -> None:
    story, shelf, rows = cold_story()
    move = story.named(RecordKind.MOVE, rows[8:9], due=u64(NOON + 1))
    cancel = story.named(RecordKind.CANCEL, rows[8:9])
    cancel.sequence += 1
    cancel.requests = (RequestRef(BOB, 1, 1, 1),)
    asked = story.timeline.cold(move)
    assert asked is not None
    assert story.timeline.cold(cancel) is None
    story.timeline.entries_read(shelf.rows[1 << 16 | 8], asked)
    story.timeline.apply(move)
    assert story.timeline.apply(cancel).results[0].outcomes.tolist() == [Outcome.DONE]


def test_a_forged_id_that_is_absent_does_not_hide_the_true_one() -> None:
    story, shelf, rows = cold_story()
    forged = rows[8:9].copy()
    forged["first"] += 1
    cancel = story.named(RecordKind.CANCEL, forged)
    asked = story.timeline.cold(cancel)
    assert asked is not None
    story.timeline.entries_read(NO_ENTRIES, asked)
    move = story.named(RecordKind.MOVE, rows[8:9], due=u64(NOON + 1))
    move.sequence += 1
    asked = story.timeline.cold(move)
    assert asked is not None
    story.timeline.apply(cancel)
    story.timeline.entries_read(shelf.rows[1 << 16 | 8], asked)
    assert len(story.timeline.apply(move).waiting) == 1


def test_a_message_named_before_its_insert_is_applied_is_not_lost_between() -> None:
    """A follower holds both records; the disk says "absent", then the row is inserted, saved and cold."""
    story, shelf, _ = cold_story()
    insert = story.record(
        RecordKind.INSERT, due=u64(NOON + 99_000), size=np.ones(1, np.uint32), crc=np.ones(1, np.uint32)
    )
    target = np.zeros(1, dtype=shelf.rows[1 << 16].dtype)
    target["first"], target["sequence"] = NOON + 99_000, insert.sequence
    cancel = story.named(RecordKind.CANCEL, target)
    cancel.sequence += 1
    cancel.requests = (RequestRef(BOB, 1, 1, 1),)
    asked = story.timeline.cold(cancel)
    assert asked is not None
    story.timeline.apply(insert)
    story.timeline.entries_read(NO_ENTRIES, asked)
    shelf.save(story.timeline)
    assert story.timeline.apply(cancel).results[0].outcomes.tolist() == [Outcome.DONE]


def test_a_read_of_an_older_disk_does_not_revive_a_message() -> None:
    """The row is read, its record cut off; a scan brings it in, it is cancelled; only then the read answers."""
    story, shelf, rows = cold_story(hot_rows_max=3)
    timeline = story.timeline
    cut_off = story.named(RecordKind.CANCEL, rows[8:9])
    asked = timeline.cold(cut_off)
    assert asked is not None
    answer = shelf.rows[1 << 16 | 8]
    timeline.unpin(cut_off)
    timeline.hot_rows_max = 100
    wanted = timeline.wants_scan()
    assert wanted is not None
    missing = [row for key, row in shelf.rows.items() if (int(row["wait_at"][0]), key) > wanted[:2]]
    timeline.scanned(np.concatenate(missing), True, wanted[:2])
    assert story.request(RecordKind.CANCEL, rows[8:9]) == [Outcome.DONE]
    shelf.save(timeline)
    again = story.named(RecordKind.CANCEL, rows[8:9])
    again.requests = (RequestRef(ALICE, 1, 1, 1),)
    asked_again = timeline.cold(again)
    timeline.entries_read(answer, asked)
    if asked_again is not None:
        timeline.entries_read(NO_ENTRIES, asked_again)
    assert timeline.apply(again).results[0].outcomes.tolist() == [Outcome.NOT_FOUND]


def test_a_message_that_a_later_record_names_keeps_its_row_until_then() -> None:
    """Otherwise the later record would hold the row of whatever message came next."""
    story = Story()
    row = story.insert(NOON + 5).waiting
    first, second = (story.named(RecordKind.CANCEL, row) for _ in range(2))
    second.sequence += 1
    second.requests = (RequestRef(BOB, 1, 1, 1),)
    for record in (first, second):
        assert story.timeline.cold(record) is None
    story.timeline.apply(first)
    assert story.timeline.memory_rows == 1
    assert story.timeline.apply(second).results[0].outcomes.tolist() == [Outcome.NOT_FOUND]
    Shelf().save(story.timeline)
    assert story.timeline.memory_rows == 0


def test_a_lease_without_first_instants_may_only_name_what_is_in_memory() -> None:
    story, _, rows = cold_story()
    record = story.lease_record(rows[8:9])
    record.first = u64()
    with pytest.raises(InvariantViolated, match="without their first instants"):
        story.timeline.cold(record)


# ---------------------------------------------------------------- the hot window


def test_the_window_shrinks_to_the_soonest_half_and_grows_by_scans() -> None:
    story, shelf, rows = cold_story(hot_rows_max=4)
    timeline = story.timeline
    assert timeline.waiting_hot()["row"].tolist() == [0, 1]
    assert timeline.wants_scan() is None
    story.request(RecordKind.CANCEL, rows[:1])
    wanted = timeline.wants_scan()
    assert wanted == (NOON + 2000, 1 << 16 | 1, 2, frozenset(), b"", (), 0, False)
    assert timeline.wants_scan() is None  # one is under way
    gained = timeline.scanned(np.concatenate([shelf.rows[1 << 16 | at] for at in (2, 3)]), False, wanted[:2])
    assert gained["row"].tolist() == [2, 3]
    assert timeline.waiting_hot()["row"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("exhausted", [False, True])
def test_a_scan_from_before_the_window_went_back_is_no_answer(exhausted: bool) -> None:
    """A job's commit brings the window back to rows that only the disk holds. The scan under way began behind them."""
    story, shelf, until = Story(Timeline(UID, hot_rows_max=4)), Shelf(), NOON + 10_000
    timeline = story.timeline
    for job, dues in ((ALICE, range(until, until + 5)), (b"", range(until + 1000, until + 1010))):
        size = np.zeros(len(dues), np.uint32)
        columns = {"due": u64(*dues), "size": size, "crc": size, "job": job}
        story.apply(story.record(RecordKind.INSERT, job_until=until if job else 0, **columns))
    shelf.save(timeline)
    assert story.request(RecordKind.CANCEL, timeline.waiting_hot()[:1]) == [Outcome.DONE]
    wanted = timeline.wants_scan()
    assert wanted is not None
    assert wanted.after_wait_at > until + 5
    commit = story.record(RecordKind.JOB, job=ALICE, job_until=until, job_action=JobAction.COMMIT)
    commit.requests = (RequestRef(BOB, 9, 9, 1),)
    story.apply(commit)
    behind = [row for key, row in sorted(shelf.rows.items()) if (int(row["wait_at"][0]), key) > wanted[:2]]
    assert not len(timeline.scanned(np.concatenate(behind), exhausted, wanted[:2]))
    again = timeline.wants_scan()
    assert again is not None
    assert again.after_wait_at == until
    assert not again.hidden
    job = [row for _, row in sorted(shelf.rows.items()) if row["job"][0]]
    gained = timeline.scanned(np.concatenate(job), False, again[:2])
    assert gained["wait_at"].tolist() == list(range(until, until + 5))


def test_a_scan_that_left_a_job_out_that_was_committed_meanwhile_is_no_answer() -> None:
    """The window would take the messages of that job for known, and they would never be delivered."""
    story, shelf, until = Story(Timeline(UID, hot_rows_max=4)), Shelf(), NOON + 10_000
    timeline = story.timeline
    for job, dues in ((b"", range(NOON + 1000, NOON + 1006)), (ALICE, range(until, until + 2))):
        size = np.zeros(len(dues), np.uint32)
        columns = {"due": u64(*dues), "size": size, "crc": size, "job": job}
        story.apply(story.record(RecordKind.INSERT, job_until=until if job else 0, **columns))
    shelf.save(timeline)
    for _ in range(2):
        assert story.request(RecordKind.CANCEL, timeline.waiting_hot()[:1]) == [Outcome.DONE]
    wanted = timeline.wants_scan()
    assert wanted is not None
    [number] = wanted.hidden
    commit = story.record(RecordKind.JOB, job=ALICE, job_until=until, job_action=JobAction.COMMIT)
    commit.requests = (RequestRef(BOB, 9, 9, 1),)
    story.apply(commit)
    behind = [row for key, row in sorted(shelf.rows.items()) if (int(row["wait_at"][0]), key) > wanted[:2]]
    own = [row for row in behind if row["job"][0]]
    others = [row for row in behind if not row["job"][0]]
    looked_to = int(own[-1]["wait_at"][0]), 2 << 16 | 1
    assert not len(timeline.scanned(np.concatenate(others), True, wanted[:2], looked_to, frozenset({number})))
    again = timeline.wants_scan()
    assert again is not None
    assert (again[:2], again.hidden) == (wanted[:2], frozenset())
    gained = timeline.scanned(np.concatenate(behind), True, again[:2])
    assert gained["wait_at"].tolist()[-2:] == [until, until + 1]


def test_what_begins_to_wait_beyond_the_window_is_not_reported() -> None:
    story, _, _ = cold_story()
    assert len(story.insert(NOON + 90_000).waiting) == 0
    assert len(story.insert(NOON + 1).waiting) == 1
    assert story.timeline.scheduled_count == 12


def test_rows_leave_memory_only_when_their_checkpoint_is_durable() -> None:
    story = Story(Timeline(UID, hot_rows_max=2))
    story.insert(*(NOON + at for at in range(1, 11)))
    save = story.timeline.checkpoint()
    assert save is not None
    assert story.timeline.memory_rows == 10
    story.timeline.checkpoint_saved(save.applied)
    assert story.timeline.memory_rows == 1


# ---------------------------------------------------------------- order, versions, determinism


def test_records_are_applied_in_turn() -> None:
    story = Story()
    record = story.record(RecordKind.BARRIER)
    record.sequence = 2
    with pytest.raises(InvariantViolated, match="out of turn"):
        story.timeline.apply(record)


@pytest.mark.parametrize(("kind", "version"), [(RecordKind.BARRIER, FEATURE_LEVEL + 1), (99, 1)])
def test_an_unknown_record_stops_the_partition_and_changes_nothing(kind: RecordKind, version: int) -> None:
    story = Story()
    record = story.record(kind, version=version)
    with pytest.raises(UnknownVersion):
        story.timeline.apply(record)
    assert story.timeline.applied == 0


def test_nothing_to_save_when_nothing_was_applied_or_while_saving() -> None:
    story = Story()
    assert story.timeline.checkpoint() is None
    story.insert(NOON)
    assert story.timeline.checkpoint() is not None
    story.insert(NOON)
    assert story.timeline.checkpoint() is None


def trace() -> str:
    """Return a digest of a story of many clients, states and checkpoints."""
    story, shelf = Story(Timeline(UID, hot_rows_max=8)), Shelf()
    seen = hashlib.sha256()
    for turn in range(40):
        story.stamp += 100
        client = hashlib.md5(bytes([turn % 7])).digest()
        rows = story.insert(
            *(story.stamp + turn * at for at in range(5)), request=RequestRef(client, turn, turn, 5)
        )
        leased = story.lease(rows.waiting[:2])
        story.request(RecordKind.ACK, leased[:1])
        if turn % 5 == 0:
            shelf.save(story.timeline)
            assert shelf.last is not None
            seen.update(repr((shelf.last.put.tobytes(), shelf.last.tables)).encode())
        seen.update(repr(story.timeline.export()).encode())
    return seen.hexdigest()


def test_rows_are_short_once_every_build_knows_them() -> None:
    """Before that a replica of an older build, or this folder under one, must be able to read them."""
    story = Story()
    story.insert(NOON + 1_000)
    save = story.timeline.checkpoint()
    assert save is not None
    assert not save.short
    story.timeline.checkpoint_saved(save.applied)
    story.apply(story.record(RecordKind.BARRIER, version=LEVEL_OF_KINDS))
    save = story.timeline.checkpoint()
    assert save is not None
    assert save.short


def test_a_side_table_of_a_newer_build_is_refused_rather_than_lost() -> None:
    _, shelf, _ = cold_story()
    found = shelf.recover()
    found.tables[b"z"] = [TableRow(b"key", b"value")]
    with pytest.raises(UnknownVersion, match="side tables that this build does not know: 'z'"):
        Timeline(UID, found)


def test_the_state_does_not_depend_on_the_hash_seed() -> None:
    code = f"import runpy; print(runpy.run_path({str(Path(__file__))!r})['trace']())"
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        found.add(run.stdout)
    assert found == {trace() + "\n"}


def test_a_row_that_the_disk_answers_twice_is_filled_in_once() -> None:
    """Two ids of one key are read, and one row answers both: the other replicas must not differ from then on."""
    story, shelf, rows = cold_story(hot_rows_max=3)
    timeline = story.timeline
    other = rows[8:9].copy()
    other["first"] += 1
    record = story.named(RecordKind.CANCEL, np.concatenate([other, rows[8:9]]), token=np.zeros(2, np.uint64))
    record.requests = (RequestRef(ALICE, 1, 1, 2),)
    asked = timeline.cold(record)
    assert asked is not None
    answer = shelf.rows[1 << 16 | 8]
    timeline.entries_read(np.concatenate([answer, answer]), asked)
    assert timeline.apply(record).results[0].outcomes.tolist() == [Outcome.NOT_FOUND, Outcome.DONE]
    assert timeline.checkpoint() is not None  # it counts the placeholders

"""Unique keys: what rows meet, what stays in memory, and what is swept."""

from __future__ import annotations

import numpy as np
import pytest

from dueq.core.ports.entry import NO_ENTRIES
from dueq.core.ports.names import Answered, Remembered, expiry_key, hashes_of, unpack_name
from dueq.core.ports.persistence import RecoveredPartition
from dueq.core.state import keyed
from dueq.core.state.timeline import Timeline
from dueq.limits import WINDOW_MS_MAX
from dueq_codecs.codes import Code
from dueq_codecs.meta import Meta
from dueq_codecs.records import JobAction, OnDuplicate, Outcome, Record, RecordKind, RequestRef
from dueq_codecs.rules import key_hashes, once_hashes
from dueq_codecs.topic_settings import TopicSettings

UID = 7
DUE = 1_000_000
A, B, C = hashes_of(*key_hashes([b"a", b"b", b"c"]))


class Kept:
    """A timeline, and its records one after the other."""

    def __init__(self, remember_ms: int = 0) -> None:
        self.timeline, self.sequence, self.stamp = Timeline(UID), 0, 1_000
        if remember_ms:
            record = self._next(RecordKind.SETTINGS)
            record.document = TopicSettings(1, keys="unique", remember_ms=remember_ms).encode()
            self.timeline.apply(record)

    def _next(self, kind: RecordKind) -> Record:
        self.sequence += 1
        return Record(kind, UID, self.sequence, 1, self.stamp, 2)

    def insert(
        self,
        *keys: bytes,
        does: OnDuplicate = OnDuplicate.REFUSE,
        retry: bool = False,
        due: int = DUE,
        window_ms: int = 0,
    ) -> tuple[list[int], list[tuple[int, ...]]]:
        """Return the outcomes, and what was met: (first, sequence, row, due)."""
        record = self._next(RecordKind.INSERT)
        record.due, record.keyed = np.full(len(keys), due, np.uint64), Meta.KEY
        record.size = record.crc = np.full(len(keys), 3, np.uint32)
        record.key_high, record.key_low = key_hashes(keys)
        if window_ms:
            record.window = np.full(len(keys), window_ms, np.uint32)
        record.on_duplicate, record.retry = does, retry
        record.requests = (RequestRef(b"c" * 16, self.sequence, 1, len(keys)),)
        [result] = self.timeline.apply(record).results
        return result.outcomes.tolist(), result.present.tolist()

    def once(
        self,
        *keys: bytes,
        digest: int = 1,
        claim: bool = False,
        unique: bytes = b"",
        does: OnDuplicate = OnDuplicate.REFUSE,
    ) -> tuple[list[int], list[tuple[int, ...]]]:
        """The same of rows with idempotency keys."""
        record = self._next(RecordKind.INSERT)
        record.due = np.full(len(keys), DUE, np.uint64)
        record.size = record.crc = np.zeros(len(keys), np.uint32)
        record.once_high, record.once_low = once_hashes(keys)
        record.once_digest, record.claim = np.full(len(keys), digest, np.uint64), claim
        if unique:
            record.key_high, record.key_low = key_hashes([unique] * len(keys))
            record.keyed, record.on_duplicate = Meta.KEY, does
        record.requests = (RequestRef(b"c" * 16, self.sequence, 1, len(keys)),)
        [result] = self.timeline.apply(record).results
        return result.outcomes.tolist(), result.present.tolist()

    def end(self, kind: RecordKind, sequence: int, token: int = 0, row: int = 0) -> int:
        record = self._next(kind)
        record.first = np.array([DUE], np.uint64)
        record.target_sequence, record.target_row = (
            np.array([sequence], np.uint64),
            np.array([row], np.uint16),
        )
        record.token = np.array([token], np.uint64)
        if kind == RecordKind.LEASE:
            record.token = np.empty(0, np.uint64)
            record.consumer, record.consumers = np.zeros(1, np.uint16), (b"x" * 16,)
            record.lease_ms = np.array([1000], np.uint64)
        self.timeline.apply(record)
        return record.sequence

    def save(self) -> dict[bytes, bytes]:
        """Make a checkpoint; returns the rows of keys that it puts."""
        save = self.timeline.checkpoint()
        assert save is not None
        self.timeline.checkpoint_saved(save.applied)
        return {digest: row for digest, row in (*save.names, *save.borne.rows()) if row is not None}


@pytest.mark.parametrize(
    ("does", "outcome"),
    [
        (OnDuplicate.REFUSE, Outcome.TAKEN),
        (OnDuplicate.KEEP, Outcome.KEPT),
        (OnDuplicate.REPLACE, Outcome.DONE),
    ],
)
def test_a_key_names_one_waiting_message(does: OnDuplicate, outcome: Outcome) -> None:
    kept = Kept()
    assert kept.insert(b"a", b"b", b"", b"") == ([], [])
    outcomes, met = kept.insert(b"c", b"a", does=does)
    assert kept.timeline.scheduled_count == 5
    if outcome == Outcome.DONE:
        assert (outcomes, met) == ([], [])
    else:
        assert (outcomes, met) == ([Outcome.DONE, outcome], [(DUE, 1, 0, DUE)])


def test_rows_of_one_record_meet_each_other() -> None:
    kept = Kept()
    assert kept.insert(b"a", b"a") == ([Outcome.DONE, Outcome.TAKEN], [(DUE, 1, 0, DUE)])
    assert kept.insert(b"b", b"b", does=OnDuplicate.REPLACE) == ([], [])
    assert kept.timeline.scheduled_count == 2
    assert kept.insert(b"b") == ([Outcome.TAKEN], [(DUE, 2, 1, DUE)])


def test_a_leased_message_is_not_replaced_and_an_acked_one_is_gone() -> None:
    kept = Kept()
    kept.insert(b"a")
    token = kept.end(RecordKind.LEASE, 1)
    assert kept.insert(b"a", does=OnDuplicate.REPLACE) == ([Outcome.LEASED], [(DUE, 1, 0, DUE)])
    kept.end(RecordKind.ACK, 1, token)
    assert kept.insert(b"a") == ([], [])


def test_a_retry_takes_only_the_same_for_its_own() -> None:
    kept = Kept()
    kept.insert(b"a")
    assert kept.insert(b"a", retry=True) == ([Outcome.KEPT], [(DUE, 1, 0, DUE)])
    assert kept.insert(b"a", retry=True, due=DUE + 1) == ([Outcome.TAKEN], [(DUE, 1, 0, DUE)])


@pytest.mark.parametrize(
    ("due", "outcome"),
    [
        (DUE - 1, Outcome.TAKEN),
        (DUE, Outcome.KEPT),
        (DUE + WINDOW_MS_MAX, Outcome.KEPT),
        (DUE + WINDOW_MS_MAX + 1, Outcome.TAKEN),
    ],
)
def test_a_retry_in_a_window_knows_its_own_wherever_an_earlier_leader_has_put_it(
    due: int, outcome: Outcome
) -> None:
    """Else the caller would hear that its key is taken, by the message that it has scheduled itself."""
    kept = Kept()
    kept.insert(b"a", due=due)
    assert kept.insert(b"a", retry=True, due=DUE + 9, window_ms=9) == ([outcome], [(due, 1, 0, due)])


def test_a_finished_message_is_remembered_by_the_age_of_the_partition() -> None:
    kept = Kept(remember_ms=5_000)
    kept.insert(b"a")
    kept.end(RecordKind.CANCEL, 2)
    for does in OnDuplicate.REPLACE, OnDuplicate.REFUSE:
        assert kept.insert(b"a", does=does) == ([Outcome.TAKEN], [(DUE, 2, 0, DUE)])
    kept.stamp += 5_000
    assert kept.insert(b"a", does=OnDuplicate.KEEP) == ([Outcome.KEPT], [(DUE, 2, 0, DUE)])
    kept.stamp += 1
    assert kept.insert(b"a") == ([], [])


def test_keys_leave_memory_with_the_checkpoint_and_are_read_again() -> None:
    kept = Kept()
    kept.insert(*(b"%d" % number for number in range(50)), b"a")
    assert kept.timeline.names_in_memory == 52
    assert len(kept.save()) == 51
    assert (kept.timeline.names_in_memory, kept.timeline.names_count) == (1, 51)
    record = kept._next(RecordKind.INSERT)
    record.key_high, record.key_low = key_hashes([b"a", b"z"])
    wanted = kept.timeline.cold_keys(record)
    assert wanted is not None
    assert wanted.hashes == [A]
    assert not kept.timeline.ready(record)
    kept.timeline.names_read(wanted, {A: (DUE, 1 << 16 | 50)}, NO_ENTRIES)
    assert kept.timeline.prepare(record) == (None, None)
    assert kept.timeline.ready(record)
    kept.timeline.unpin(record)
    assert kept.timeline.names_in_memory == 1


def _naming_a(kept: Kept, count: int) -> list[Record]:
    """Records of the log that all name a key of the disk, which was read for them."""
    kept.insert(b"a")
    kept.save()
    records = [_insert_of(kept, b"a") for _ in range(count)]
    for record in records:
        record.requests = (RequestRef(b"c" * 16, record.sequence, 1, 1),)
    for wanted in [kept.timeline.cold_keys(record) for record in records]:
        if wanted is not None:
            kept.timeline.names_read(wanted, {A: (DUE, 1 << 16)}, NO_ENTRIES)
    return records


def test_a_key_that_many_records_of_the_log_name_leaves_memory_with_the_last_of_them() -> None:
    kept = Kept()
    for record in _naming_a(kept, 4):
        assert kept.timeline.names_in_memory == 2
        kept.timeline.unpin(record)
    assert kept.timeline.names_in_memory == 1


def test_a_key_that_many_records_of_the_log_name_is_there_when_the_last_of_them_is_applied() -> None:
    """Those that are cut off before let go of it once each. Else two messages would bear one key."""
    kept = Kept()
    first, *cut_off = _naming_a(kept, 3)
    for record in reversed(cut_off):
        kept.timeline.unpin(record)
    [result] = kept.timeline.apply(first).results
    assert result.outcomes.tolist() == [Outcome.TAKEN]
    assert kept.timeline.scheduled_count == 1


def test_a_message_that_only_the_disk_has_is_read_when_its_key_is_taken_again() -> None:
    kept = Kept()
    kept.timeline = Timeline(UID, hot_rows_max=2)
    kept.insert(*(b"%d" % number for number in range(50)), b"a")
    kept.save()
    wanted = kept.timeline.cold_keys(record := _insert_of(kept, b"a"))
    assert wanted is not None
    kept.timeline.names_read(wanted, {A: (DUE, 1 << 16 | 50)}, NO_ENTRIES)
    names, ids = kept.timeline.prepare(record)
    assert names is None
    assert ids is not None
    assert (ids.first.tolist(), ids.sequence.tolist(), ids.row.tolist()) == ([DUE], [1], [50])


def test_a_key_that_was_given_up_names_whoever_takes_it_next() -> None:
    kept = Kept()
    kept.insert(b"a")
    kept.end(RecordKind.CANCEL, 1)
    assert kept.insert(b"b", b"a") == ([], [])
    assert kept.insert(b"a") == ([Outcome.TAKEN], [(DUE, 3, 1, DUE)])


def test_what_comes_and_goes_between_two_checkpoints_is_not_written() -> None:
    kept = Kept()
    kept.insert(b"a")
    kept.end(RecordKind.CANCEL, 1)
    save = kept.timeline.checkpoint()
    assert save is not None
    assert (save.names, kept.timeline.names_count) == ([], 0)


def test_the_row_of_a_key_goes_though_who_took_it_over_has_come_and_gone_since_the_checkpoint() -> None:
    kept = Kept()
    kept.insert(b"a")
    kept.save()
    record = kept._next(RecordKind.INSERT)
    record.key_high, record.key_low = key_hashes([b"a"])
    wanted = kept.timeline.cold_keys(record)
    assert wanted is not None
    kept.timeline.names_read(wanted, {A: (DUE, 1 << 16)}, NO_ENTRIES)
    kept.sequence -= 1
    assert kept.insert(b"a", does=OnDuplicate.REPLACE) == ([], [])
    kept.end(RecordKind.CANCEL, 2)
    save = kept.timeline.checkpoint()
    assert save is not None
    assert (save.names, kept.timeline.names_count) == ([(A, None)], 0)


def test_a_sweep_spares_what_was_taken_again_while_it_was_read() -> None:
    kept = Kept(remember_ms=5_000)
    kept.insert(b"a")
    kept.end(RecordKind.CANCEL, 2)
    row = unpack_name(kept.save()[A])
    assert isinstance(row, Remembered)
    assert kept.timeline.wants_sweep() is None
    kept.stamp += 10_000
    record = kept._next(RecordKind.BARRIER)
    kept.timeline.apply(record)
    sweep = kept.timeline.wants_sweep()
    assert sweep is not None
    wanted = kept.timeline.cold_keys(taking := _insert_of(kept, b"a"))
    assert wanted is not None
    kept.timeline.names_read(wanted, {A: row}, NO_ENTRIES)
    kept.timeline.apply(taking)
    kept.save()
    assert kept.timeline.names_in_memory == 2  # the sweep has seen an older disk
    kept.timeline.swept(sweep[0], [(row.until, A)], None)
    assert kept.timeline.names_count == 1
    assert kept.timeline.names_in_memory == 1
    assert kept.timeline.wants_sweep() is None


def sweeping(*keys: bytes) -> tuple[Kept, int, Remembered]:
    """The last of these keys is remembered no more, and a sweep begins: its number, and what the key's row says."""
    kept = Kept(remember_ms=5_000)
    kept.insert(*keys)
    kept.end(RecordKind.CANCEL, 2, row=len(keys) - 1)
    row = unpack_name(kept.save()[hashes_of(*key_hashes(keys))[-1]])
    assert isinstance(row, Remembered)
    kept.stamp += 10_000
    kept.timeline.apply(kept._next(RecordKind.BARRIER))
    sweep = kept.timeline.wants_sweep()
    assert sweep is not None
    return kept, sweep[0], row


def test_a_sweep_spares_what_is_remembered_anew_since_it_was_read() -> None:
    kept, number, row = sweeping(b"a")
    wanted = kept.timeline.cold_keys(taking := _insert_of(kept, b"a"))
    assert wanted is not None
    kept.timeline.names_read(wanted, {A: row}, NO_ENTRIES)
    kept.timeline.apply(taking)
    kept.end(RecordKind.CANCEL, taking.sequence)
    kept.timeline.swept(number, [(row.until, A)], None)
    assert kept.timeline.names_count == 1
    assert kept.insert(b"a")[0] == [Outcome.TAKEN]


def test_what_is_remembered_no_more_goes_with_the_next_checkpoint() -> None:
    kept, number, row = sweeping(b"a")
    assert kept.timeline.wants_sweep() is None
    kept.timeline.swept(number, [(row.until, A)], None)
    save = kept.timeline.checkpoint()
    assert save is not None
    assert save.names == [(A, None)]
    assert save.remembered == [(row.until.to_bytes(8, "big") + A, None)]
    assert kept.timeline.names_count == 0


def test_keys_of_a_job_that_was_aborted_are_free_though_the_topic_remembers_keys() -> None:
    """Who tries the job again, under another name, would be refused what it has never brought."""
    kept = Kept(remember_ms=5_000)
    record = _insert_of(kept, b"a")
    record.job, record.job_until = b"j" * 16, DUE - 1
    record.requests = (RequestRef(b"c" * 16, record.sequence, 1, 1),)
    assert kept.timeline.apply(record).results[0].code == Code.OK
    abort = kept._next(RecordKind.JOB)
    abort.job, abort.job_action, abort.job_until = b"j" * 16, JobAction.ABORT, DUE - 1
    kept.timeline.apply(abort)
    kept.end(RecordKind.CANCEL, record.sequence)
    assert (kept.timeline.scheduled_count, kept.timeline.names_count) == (0, 0)
    assert kept.insert(b"a") == ([], [])


def test_a_row_of_the_index_that_is_out_of_date_goes_alone() -> None:
    kept, number, row = sweeping(b"a", b"b")
    kept.timeline.swept(number, [(row.until, B)], None, [(3, A), (4, C)])
    save = kept.timeline.checkpoint()
    assert save is not None
    assert save.names == [(B, None)]
    assert sorted(save.remembered) == [
        (expiry_key(3, A), None), (expiry_key(4, C), None), (expiry_key(row.until, B), None),
    ]  # fmt: skip
    assert kept.timeline.names_count == 1


def test_it_is_not_known_that_nothing_runs_out_while_the_disk_is_asked() -> None:
    kept = Kept(remember_ms=5_000)
    kept.insert(b"a")
    kept.save()
    assert not kept.timeline.names_run_out, "a live message bears it"
    kept.end(RecordKind.CANCEL, 2)
    row = unpack_name(kept.save()[A])
    assert isinstance(row, Remembered)
    assert kept.timeline.names_run_out
    kept.stamp += 10_000
    kept.timeline.apply(kept._next(RecordKind.BARRIER))
    sweep = kept.timeline.wants_sweep()
    assert sweep is not None
    assert kept.timeline.names_run_out, "the disk may have more"
    kept.timeline.swept(sweep[0], [(row.until, A)], None)
    kept.save()
    assert not kept.timeline.names_run_out


def aged(kept: Kept) -> None:
    """Let all keys that are remembered be so no more."""
    kept.stamp += 10_000
    kept.timeline.apply(kept._next(RecordKind.BARRIER))


def test_a_key_whose_checkpoint_is_on_its_way_is_swept_after_it() -> None:
    """The sweep that was read meanwhile has not seen it, and says that there is nothing more."""
    kept = Kept(remember_ms=5_000)
    kept.insert(b"a")
    kept.end(RecordKind.CANCEL, 2)
    save = kept.timeline.checkpoint()
    assert save is not None
    aged(kept)
    sweep = kept.timeline.wants_sweep()
    assert sweep is not None
    kept.timeline.swept(sweep[0], [], None)
    kept.timeline.checkpoint_saved(save.applied)
    assert kept.timeline.names_run_out
    assert kept.timeline.wants_sweep() is not None


def test_a_sweep_that_did_not_come_to_the_end_goes_on_after_the_next_checkpoint() -> None:
    kept, number, row = sweeping(b"a")
    kept.timeline.swept(number, [(row.until, A)], row.until + 1)
    assert kept.timeline.wants_sweep() is None
    kept.save()
    assert kept.timeline.wants_sweep() is not None


def test_a_restarted_replica_sweeps_what_was_remembered_before() -> None:
    kept = Kept(remember_ms=5_000)
    kept.insert(b"a", b"b")
    kept.end(RecordKind.CANCEL, 2)
    save = kept.timeline.checkpoint()
    assert save is not None
    kept.timeline = Timeline(
        UID,
        RecoveredPartition(
            UID, "t", 1, 0, save.applied, save.applied + 1, save.applied, [(0, 0)], [], save.low_water,
            NO_ENTRIES, save.tables, save.summary, [],
        ),
    )  # fmt: skip
    assert kept.timeline.names_run_out
    aged(kept)
    assert kept.timeline.wants_sweep() is not None


def _insert_of(kept: Kept, key: bytes) -> Record:
    record = kept._next(RecordKind.INSERT)
    record.due, record.keyed = np.full(1, DUE, np.uint64), Meta.KEY
    record.size = record.crc = np.full(1, 3, np.uint32)
    record.key_high, record.key_low = key_hashes([key])
    record.on_duplicate = OnDuplicate.REFUSE
    return record


# ---------------------------------------------------------------- idempotency keys


def test_a_repeated_idempotency_key_gets_the_first_answer_and_another_request_is_refused() -> None:
    kept = Kept()
    assert kept.once(b"k", b"", b"") == ([], [])
    assert kept.once(b"k", b"m") == ([Outcome.KEPT, Outcome.DONE], [(DUE, 1, 0, DUE)])
    assert kept.once(b"k", digest=2) == ([Outcome.DIFFERS], [(0, 0, 0, 0)])
    assert kept.once(b"n", b"n") == ([Outcome.DONE, Outcome.KEPT], [(DUE, 4, 0, DUE)])
    assert kept.timeline.scheduled_count == 5


def test_the_answer_stays_when_the_message_is_gone_and_ends_with_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyed, "ONCE_MS", 5_000)
    kept = Kept()
    kept.once(b"k")
    kept.end(RecordKind.CANCEL, 1)
    assert kept.timeline.scheduled_count == 0
    kept.stamp += 5_000
    assert kept.once(b"k")[0] == [Outcome.KEPT]
    kept.stamp += 1
    assert kept.once(b"k") == ([], [])
    assert kept.timeline.scheduled_count == 1
    [row] = kept.save().values()
    assert isinstance(unpack_name(row), Answered)


def test_a_claim_makes_no_message() -> None:
    kept = Kept()
    assert kept.once(b"k", claim=True) == ([], [])
    assert kept.timeline.scheduled_count == 0
    assert kept.once(b"k", claim=True) == ([Outcome.KEPT], [(0, 0, 0, 0)])
    assert kept.once(b"k", claim=True, digest=2) == ([Outcome.DIFFERS], [(0, 0, 0, 0)])


def test_beside_a_unique_key_the_answer_is_kept_and_a_refusal_is_not() -> None:
    kept = Kept()
    kept.insert(b"a")
    met = (DUE, 1, 0, DUE)
    assert kept.once(b"k", unique=b"a") == ([Outcome.TAKEN], [met])
    assert kept.once(b"k", unique=b"a", does=OnDuplicate.KEEP, digest=2) == ([Outcome.KEPT], [met])
    kept.end(RecordKind.CANCEL, 1)
    assert kept.once(b"k", unique=b"a", digest=2) == ([Outcome.KEPT], [met])
    assert kept.once(b"m", unique=b"a") == ([], [])
    assert kept.insert(b"a")[0] == [Outcome.TAKEN]


def test_no_unique_key_is_an_idempotency_key_and_forged_hashes_break_nothing() -> None:
    assert hashes_of(*once_hashes([b"a"])) != [A]
    kept = Kept()
    kept.once(b"k")
    record = kept._next(RecordKind.INSERT)
    record.due, record.keyed = np.full(1, DUE, np.uint64), Meta.KEY
    record.size = record.crc = np.full(1, 3, np.uint32)
    record.key_high, record.key_low = once_hashes([b"k"])
    record.on_duplicate = OnDuplicate.REPLACE
    record.requests = (RequestRef(b"c" * 16, 2, 1, 1),)
    [result] = kept.timeline.apply(record).results
    assert result.outcomes.tolist() == [Outcome.TAKEN]
    kept.insert(b"a")
    record = kept._next(RecordKind.INSERT)
    record.due, record.size, record.crc = np.full(1, DUE, np.uint64), *np.zeros((2, 1), np.uint32)
    record.once_high, record.once_low = key_hashes([b"a"])
    record.once_digest = np.ones(1, np.uint64)
    record.requests = (RequestRef(b"c" * 16, 4, 1, 1),)
    [result] = kept.timeline.apply(record).results
    assert result.outcomes.tolist() == [Outcome.DIFFERS]


def test_an_idempotency_key_with_the_hash_of_another_rows_key_is_of_no_use() -> None:
    """In one record, too: the key is the other row's, and stays so."""
    kept = Kept()
    record = kept._next(RecordKind.INSERT)
    record.due, record.keyed = np.full(2, DUE, np.uint64), Meta.KEY
    record.size = record.crc = np.full(2, 3, np.uint32)
    record.key_high, record.key_low = key_hashes([b"a", b"b"])
    record.once_high, record.once_low = np.zeros((2, 2), np.uint64)
    record.once_high[1], record.once_low[1] = record.key_high[0], record.key_low[0]
    record.once_digest = np.ones(2, np.uint64)
    record.on_duplicate = OnDuplicate.REFUSE
    record.requests = (RequestRef(b"c" * 16, 1, 1, 2),)
    [result] = kept.timeline.apply(record).results
    assert result.outcomes.tolist() == [Outcome.DONE, Outcome.DIFFERS]
    assert unpack_name(kept.save()[A]) == (DUE, 1 << 16)


def test_keys_of_a_refused_insert_leave_memory_though_the_next_one_has_them_too() -> None:
    """An older read is under way meanwhile, so that they are still there when the next one comes."""
    kept, keys = Kept(), [b"k%d" % number for number in range(100)]
    timeline = kept.timeline
    kept.insert(b"old")
    kept.save()
    hold, wanted = timeline.name_holds.hold(hashes_of(*key_hashes([b"old"])))
    kept.insert(b"other")
    kept.save()
    refused = kept._next(RecordKind.INSERT)
    refused.due, refused.keyed = np.full(len(keys), DUE, np.uint64), Meta.KEY
    refused.size = refused.crc = np.full(len(keys), 3, np.uint32)
    refused.key_high, refused.key_low = key_hashes(keys)
    refused.shared, refused.shared_size = b"s" * 32, 10
    refused.requests = (RequestRef(b"c" * 16, kept.sequence, 1, len(keys)),)
    timeline.cold_keys(refused)
    [result] = timeline.apply(refused).results
    assert result.code == Code.UNKNOWN_BODY
    kept.insert(*keys)
    timeline.name_holds.read(wanted, {}, NO_ENTRIES)
    timeline.name_holds.release(hold)
    for _ in range(2):
        timeline.apply(kept._next(RecordKind.BARRIER))
        kept.save()
    assert timeline.names_in_memory <= 1

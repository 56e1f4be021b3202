"""Timeline against a naive twin: the same log, a dictionary instead of columns, no disk and no window.

The world around the timeline is random. There are records of all kinds, with repeated requests, revoked leases and
forged ids. The disk takes checkpoints some time after they were written. Reads and scans see the disk at one moment,
and are answered at a later one. Log suffixes are cut off, and restarts replay the log.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.property.checkpoint_disk import UID, Disk
from tests.property.records_at_random import PLACE, Maker

from dueq.core.ports.entry import FLAG_FAR, State, canonical, keys_of
from dueq.core.ports.names import Lasting, unpack_name
from dueq.core.ports.persistence import SaveCheckpoint
from dueq.core.state.applied import Applied
from dueq.core.state.cold import ColdIds
from dueq.core.state.dedup import DedupLimits
from dueq.core.state.forecast import HOUR_MS
from dueq.core.state.name_holds import NamesWanted
from dueq.core.state.timeline import Timeline
from dueq_chaos.sim.reference.naive import Naive
from dueq_chaos.sim.reference.naive_entry import Told
from dueq_chaos.sim.reference.naive_jobs import ENDED
from dueq_chaos.sim.reference.twins import bodies_differ, names_of, recurrences_differ
from dueq_codecs.records import JobState, Record, RecordKind


class World(Maker):
    """One run."""

    def __init__(self, seed: int, hot_rows_max: int, limits: DedupLimits, strange: float = 1) -> None:
        super().__init__(seed, Naive(PLACE, limits), strange)
        self.hot_rows_max = hot_rows_max
        self.limits = limits
        self.disk = Disk()
        self.timeline = Timeline(UID, None, hot_rows_max, limits, PLACE)
        self.told: list[Told] = []
        self.reads: list[list[Any]] = []  # [asked, answer or None]
        self.scan: list[Any] | None = None  # [position, limit, answer or None, hidden]
        self.saving: SaveCheckpoint | None = None
        self.written = False
        self.died = self.names_read = self.swept = 0
        self.view: dict[int, int] = {}  # what dispatch would hold: key -> wait_at

    # steps

    def pending(self) -> list[Record]:
        return self.log[self.timeline.applied :]

    def append(self) -> None:
        if len(self.pending()) < 6:
            record = self.make()
            self.log.append(record)
            self.hold(record)

    def hold(self, record: Record) -> None:
        asked = self.timeline.cold(record)
        if asked is not None:
            self.reads.append([asked, None])
        wanted = self.timeline.cold_keys(record)
        if wanted is not None:
            self.reads.append([wanted, None])

    def is_ready(self, record: Record) -> bool:
        self.reads += [[wanted, None] for wanted in self.timeline.prepare(record) if wanted is not None]
        return self.timeline.ready(record)

    def sweep(self) -> None:
        wanted = self.timeline.wants_sweep()
        if wanted is not None:
            self.reads.append([wanted, None])

    def cut(self) -> None:
        if not self.pending():
            return
        for _ in range(self.rng.randint(1, len(self.pending()))):
            self.timeline.unpin(self.log.pop())

    def read(self) -> None:
        if self.scan is not None and self.rng.random() < 0.3:
            if self.scan[2] is None:
                self.scan[2] = self.disk.scan(*self.scan[0], self.scan[1], self.scan[3])
            else:
                entries, exhausted, looked_to, left_out = self.scan[2]
                gained = self.timeline.scanned(entries, exhausted, self.scan[0], looked_to, left_out)
                self.scan = None
                self.view |= zip(keys_of(gained).tolist(), gained["wait_at"].tolist(), strict=True)
        elif self.reads:
            at = self.rng.randrange(len(self.reads))
            asked, answer = read = self.reads[at]
            if answer is None:
                if isinstance(asked, NamesWanted):
                    read[1] = self.disk.read_names(asked.hashes)
                elif isinstance(asked, ColdIds):
                    read[1] = self.disk.read(asked)
                else:
                    read[1] = self.disk.expired(asked[1], self.rng.randint(1, 4))
                return
            del self.reads[at]
            if isinstance(asked, NamesWanted):
                self.names_read += len(answer[0])
                self.timeline.names_read(asked, *answer)
            elif isinstance(asked, ColdIds):
                self.timeline.entries_read(answer, asked)
            else:
                self.swept += len(answer[0])
                self.timeline.swept(asked[0], *answer)

    def look_ahead(self) -> None:
        wanted = self.timeline.wants_scan()
        if wanted is not None:
            assert self.scan is None
            self.scan = [wanted[:2], min(wanted.limit, self.rng.randint(1, 9)), None, wanted.hidden]

    def checkpoint(self) -> None:
        if self.saving is None:
            self.saving = self.timeline.checkpoint()
            self.written = False
        elif not self.written:
            self.disk.save(self.saving)
            self.written = True
        else:
            self.timeline.checkpoint_saved(self.saving.applied)
            self.saving = None

    def advance(self) -> None:
        if not self.pending() or not self.is_ready(self.pending()[0]):
            return
        record = self.pending()[0]
        # The twin does not know that an id's sequence has 40 bits: such ids are never alive anyway.
        expected = self.twin.apply(record)
        self.told.append(expected)
        applied = self.timeline.apply(record)
        self.died += applied.died
        self.compare(applied, expected)
        self.check_sooner(applied, expected)

    def compare(self, applied: Applied, expected: Told) -> None:
        results = [
            (
                r.client_id,
                r.client_sequence,
                r.code,
                r.sequence,
                r.row,
                r.stamp,
                r.outcomes.tolist(),
                r.repeated,
                r.window.tolist(),
                r.present.tolist(),
            )
            for r in applied.results
        ]
        assert results == expected.results
        assert sorted(keys_of(applied.leased).tolist()) == sorted(set(expected.leased))
        assert sorted(applied.refused.tolist()) == sorted(expected.refused)
        assert sorted(keys_of(applied.ended).tolist()) == sorted(expected.ended)
        assert (applied.ended["state"] == State.LEASED).all()
        assert set(keys_of(applied.waiting).tolist()) <= set(expected.waiting)
        for key in expected.gone + keys_of(applied.leased).tolist():
            self.view.pop(key, None)
        waits = zip(keys_of(applied.waiting).tolist(), applied.waiting["wait_at"].tolist(), strict=True)
        self.view |= waits

    def check_sooner(self, applied: Applied, expected: Told) -> None:
        """Dispatch is told of everything inside the window that may be delivered from now on."""
        window: Any = self.timeline.export()["window"]
        waiting = self.twin.waiting()
        told = set(keys_of(applied.waiting).tolist())
        for key in expected.waiting:
            at = waiting.get(key)
            if at is not None and (window is None or (at, key) <= window) and self.twin.may_be_delivered(key):
                assert key in told

    def restart(self) -> None:
        if self.saving is not None and not self.written and self.rng.random() < 0.5:
            self.disk.save(self.saving)
        applied = self.timeline.applied
        self.saving, self.scan, self.view = None, None, {}
        self.reads.clear()
        self.timeline = Timeline(UID, self.disk.recover(), self.hot_rows_max, self.limits, PLACE)
        for record in self.pending():
            self.hold(record)
        while self.timeline.applied < applied:
            record = self.log[self.timeline.applied]
            if self.is_ready(record):
                told = self.told[self.timeline.applied]
                self.compare(self.timeline.apply(record), told)
            else:
                self.read()
            if self.rng.random() < 0.2:
                self.look_ahead()
                self.checkpoint()

    def resize(self) -> None:
        self.timeline.hot_rows_max = self.rng.choice([self.hot_rows_max, 1, 3, 1000])

    # looking

    def check(self) -> None:
        timeline, twin = self.timeline, self.twin
        waiting = twin.waiting()
        assert timeline.scheduled_count == len(waiting)
        assert timeline.leased_count == len(twin.leased)
        assert timeline.dead_count == len(twin.live) - len(waiting) - len(twin.leased)
        assert timeline.live_count == len(twin.live)
        leased = timeline.leased()
        assert keys_of(leased).tolist() == sorted(twin.leased)
        window: Any = timeline.export()["window"]
        inside = sorted(
            (at, key)
            for key, at in waiting.items()
            if (window is None or (at, key) <= window) and twin.may_be_delivered(key)
        )
        hot = timeline.deliverable_hot()
        assert list(zip(hot["wait_at"].tolist(), keys_of(hot).tolist(), strict=True)) == inside
        assert timeline.hot_count == len(inside)
        assert all(self.view.get(key) == at for at, key in inside)
        assert all(waiting.get(key) == at for key, at in self.view.items())
        self.check_export()

    def check_export(self) -> None:
        found: Any = self.timeline.export()
        entries = {row[3] << 16 | row[11]: row for row in found["entries"]}
        ended = set(found["tombstones"])
        for key, row in [*((key, row) for (_, key), row in self.disk.index.items()), *self.disk.dead.items()]:
            if key not in entries and key not in ended:
                entries[key] = canonical(row)[0]
        if self.written or self.saving is None or not self.saving.put.size:
            assert entries.keys() == self.twin.live.keys()
        for key, row in entries.items():
            assert row == self.twin.live[key].columns()
        if self.written or self.saving is None:
            assert {k: t for k, t in (self.disk.remarks | found["remarks"]).items() if t} == self.twin.remarks
        names = dict(found["names"])
        if self.written or self.saving is None or not self.saving.names:
            self.check_names(names)
        hours: dict[int, int] = {}
        for entry in self.twin.live.values():
            if entry.state == State.WAITING and not entry.flags & FLAG_FAR:
                hours[entry.wait_at // HOUR_MS] = hours.get(entry.wait_at // HOUR_MS, 0) + 1
        assert found["hours"] == sorted(hours.items())
        assert {(client, number) for client, number, _ in found["dedup"]} == self.twin.memory.names()
        answers = {(client, number) for client, number, _ in found["job_answers"]}
        assert answers == self.twin.job_memory.names()
        self.check_jobs()
        assert not recurrences_differ(self.timeline, self.twin)
        assert not bodies_differ(self.timeline, self.twin)

    def check_names(self, names: dict[str, str | None]) -> None:
        """Memory and disk together have every key that is borne or remembered, and those that are to be swept."""
        for digest, row in self.disk.names.items():
            name = unpack_name(row)
            if not isinstance(name, Lasting) or name.until >= self.timeline.age_ms:
                names.setdefault(digest.hex(), row.hex())
        assert sorted((digest, row) for digest, row in names.items() if row is not None) == names_of(
            self.twin
        )
        assert self.timeline.names_count >= len(names_of(self.twin))

    def check_jobs(self) -> None:
        twin, table = self.twin, self.timeline.jobs
        assert table.by_key.keys() == twin.jobs.by_key.keys()
        assert table.given == twin.jobs.given
        for key, job in table.by_key.items():
            mine = [entry for entry in twin.live.values() if entry.job == job.number]
            waiting = sum(entry.state == State.WAITING for entry in mine)
            dead = sum(entry.state == State.DEAD for entry in mine)
            assert (job.waiting, job.leased, job.dead) == (waiting, len(mine) - waiting - dead, dead)
            expected = twin.jobs.by_key[key]
            assert (job.number, job.state, job.until) == (expected.number, expected.state, expected.until)
            assert job.cleared_flag == expected.cleared
            withdrawn = job.state in ENDED and (waiting or dead)
            assert (job.number in table.hidden) == (job.state != JobState.COMMITTED and waiting > 0)
            assert (job in (table.to_withdraw,)) <= bool(withdrawn)
            assert not withdrawn or table.to_withdraw is not None

    def settle(self) -> None:
        """Let everything that is under way end."""
        while self.pending():
            self.advance()
            self.read()
        for _ in range(400):
            self.look_ahead()
            self.read()
        for _ in range(9):
            self.checkpoint()
        while self.reads:
            self.read()
        assert self.saving is None
        assert not self.reads

    def run(self, steps: int, restarts: bool = True) -> None:
        moves = [
            self.append,
            self.advance,
            self.read,
            self.look_ahead,
            self.checkpoint,
            self.cut,
            self.resize,
            self.sweep,
        ]
        weights = [10, 10, 8, 3, 5, 0.5, 0.3, 2]
        for step in range(steps):
            if restarts and self.rng.random() < 0.01:
                self.restart()
            else:
                self.rng.choices(moves, weights)[0]()
            if step % 7 == 0:
                self.check()
        self.settle()
        self.check()


LIMITS = st.sampled_from([DedupLimits(), DedupLimits(4, 3000, 4000), DedupLimits(30, 10_000, 900)])


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 5, 20, 10_000]), LIMITS)
@example(2379056603, 1, DedupLimits())  # a pass names a message under another's instant, then under its own
def test_the_timeline_agrees_with_its_naive_twin(seed: int, hot_rows_max: int, limits: DedupLimits) -> None:
    world = World(seed, hot_rows_max, limits)
    world.run(250)


@pytest.mark.parametrize("seed", range(4))
def test_every_message_that_ended_is_reported_as_finished_once(seed: int) -> None:
    world = World(seed, 5, DedupLimits())
    world.run(600, restarts=False)
    assert sorted(world.disk.finished) == sorted(world.twin.ended)


@pytest.mark.parametrize("seed", range(4))
def test_little_stays_in_memory_once_all_is_quiet(seed: int) -> None:
    """No tombstone, placeholder or cold row is forgotten to be forgotten."""
    world = World(seed, 3, DedupLimits())
    world.run(600)
    world.timeline.hot_rows_max = 3
    barrier = Record(RecordKind.BARRIER, UID, world.timeline.applied + 1, 1, world.stamp)
    world.log.append(barrier)
    world.settle()
    hidden = len(world.timeline.waiting_hot()) - world.timeline.hot_count
    held = world.timeline.leased_count + world.timeline.hot_count + hidden
    cold = world.timeline.triggered.keys() - set(keys_of(world.timeline.waiting_hot()).tolist())
    held += np.count_nonzero(world.timeline.rows(np.array(sorted(cold), np.uint64))["state"])
    assert world.timeline.memory_rows == held
    assert hidden <= 3 // 2
    assert world.timeline.names_in_memory == 1  # that of messages without a key
    assert world.timeline.hot_count <= 3 + 9

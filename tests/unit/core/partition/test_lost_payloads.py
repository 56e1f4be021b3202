"""A follower waits for a payload that the leader's disk does not give any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from dueq import limits
from dueq.core.partition.lost_payloads import LostPayloads
from dueq.core.ports.effects import Log, Read, SendPeer
from dueq.core.ports.membership import CoordinatorState
from dueq.core.ports.persistence import LogRead, ReadLog
from dueq.core.replication.installing import SnapshotService
from dueq.storage.ordered import layout
from dueq_chaos.scenarios.hand import Stored
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.messages import SnapshotChunk
from dueq_codecs.records import LogEntry, Outcome, Record, RecordKind
from tests.unit.core import replica_stage
from tests.unit.core.partition.test_uploads import FAR_MS, Uploader
from tests.unit.core.replica_stage import UID

# ---------------------------------------------------------------- in a mesh


class Story:
    """A mesh in which b3 lacks an upload of two (tiny) chunks, of which some brokers have lost the first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lost_at: str, retain_bytes: int = 0) -> None:
        monkeypatch.setattr(limits, "CHUNK_BYTES", 256)
        self.stage = stage = Stage(log_retain_bytes=retain_bytes)
        stage.isolate("b3")
        stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
        self.uploader = Uploader(stage, b"z" * 300)
        self.uploader.put(0)
        self.uploader.put(1)
        self.due_ms = stage.now_ms + FAR_MS
        self.uploader.name_it(FAR_MS)
        self.sequence = stage.replica("b1").log_end
        for broker in lost_at:
            key = layout.chunk_key(stage.uid, self.uploader.upload, 0)
            stage.nodes[broker].disk.payload.write([(key, None)], sync=True)

    def cancel(self) -> None:
        """Cancel the message."""
        message = Stored(self.stage.uid, self.sequence, 0, self.due_ms, self.due_ms, b"")
        cancelled = self.stage.answered(self.stage.hand("hand").cancel(self.stage.leader, [message]))
        assert cancelled.outcomes == [Outcome.DONE]

    def b3_returns(self) -> None:
        """It comes back, and more is stored."""
        stage = self.stage
        stage.network.heal()
        stage.until(lambda: stage.isr() == ["b1", "b2", "b3"], "b3 in the ISR", within_ms=300_000)
        stage.stored(b"another")
        leader = stage.replica(stage.leader).replica
        stage.until(lambda: leader.log.start > self.sequence, "a log without the record")

    def told(self, event: str) -> list[str]:
        """The brokers whose log has such a line."""
        return [name for name in self.stage.names if self.stage.told(name, event)]


@pytest.mark.parametrize("ended", [False, True], ids=["waiting", "cancelled"])
def test_another_member_leads_and_sends_it(monkeypatch: pytest.MonkeyPatch, ended: bool) -> None:
    """The follower stayed out of the ISR for ever, and the leader's log was never trimmed."""
    story = Story(monkeypatch, "b1")
    if ended:
        story.cancel()
    stage = story.stage
    sent = stage.watch("b3", lambda event: isinstance(getattr(event, "message", None), SnapshotChunk))
    stage.network.heal()
    stage.until(lambda: stage.isr() == ["b1", "b2", "b3"], "b3 in the ISR")
    assert story.told("payload.unreadable") == ["b1"]
    assert stage.leader == "b2"
    assert not sent.events
    if not ended:
        assert story.uploader.on_disk() == {"b1": 1, "b2": 2, "b3": 2}
    story.b3_returns()
    stage.finish()


def test_a_member_that_has_it_and_is_away_for_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower got a snapshot without it, and counted in the ISR."""
    story = Story(monkeypatch, "b1", retain_bytes=1 << 20)
    stage = story.stage
    stage.network.heal()
    stage.isolate("b2")
    stage.until(lambda: stage.told("b1", "payload.unreadable"), "a leader that misses it")
    stage.run_ms(10_000)
    stage.network.heal()
    stage.until(lambda: stage.isr() == ["b1", "b2", "b3"], "b3 in the ISR", within_ms=60_000)
    assert story.uploader.on_disk() == {"b1": 1, "b2": 2, "b3": 2}
    assert story.told("replica.installed") == []
    stage.finish()


@pytest.mark.parametrize("ended", [False, True], ids=["waiting", "cancelled"])
def test_what_no_member_can_read_is_left_out_by_a_snapshot(
    monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    story = Story(monkeypatch, "b1", "b2")
    if ended:
        story.cancel()
    story.b3_returns()
    assert story.told("payload.unreadable") == ["b1", "b2"]
    assert story.told("replica.installed") == ["b3"]
    story.stage.finish()


def test_a_record_whose_block_is_lost_is_sent_by_another_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower was offered a snapshot, and held what its offer named: it stayed out of the ISR for ever."""
    monkeypatch.setattr(limits, "LOG_CACHE_BYTES", 0)
    stage = Stage(log_retain_bytes=0)
    stage.isolate("b3")
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    stage.stored(b"x" * 300)
    replica = stage.replica("b1").replica
    sequence = replica.log.end
    stage.stored(b"y" * 300)
    stage.until(lambda: replica.entry(sequence) is None, "a record that is read from the disk")
    key = layout.block_key(stage.uid, sequence, 0)
    stage.nodes["b1"].disk.payload.write([(key, None)], sync=True)
    stage.network.heal()
    stage.until(lambda: stage.isr() == ["b1", "b2", "b3"], "b3 in the ISR")
    assert [name for name in stage.names if stage.told(name, "payload.unreadable")] == ["b1"]
    assert stage.leader == "b2"
    stage.until(lambda: stage.replica("b2").replica.log.start > sequence, "a log without the record")
    stage.finish()


# ---------------------------------------------------------------- at one leader

UPLOAD = 1 << 32 | 1
CHECKPOINT = 1


class Leader:
    """Broker b1, which leads records of which the second names an upload; its checkpoint has the first."""

    def __init__(self, *isr: str) -> None:
        self.stage = stage = replica_stage.Stage()
        stage.lead("b2", "b3")
        stage.node("b1", 1, "b1", *isr, version=stage.replica.standing.node_version + 1, incarnation=11)
        stage.sync()
        self.record = Record(RecordKind.INSERT, UID, 2, 1, 0)
        self.record.upload = np.array([UPLOAD], np.uint64)
        self.record.size = np.array([limits.CHUNK_BYTES + 1], np.uint32)
        stage.replica.append_own(LogEntry(self.record), stage.now)
        stage.sync()
        stage.acked_by("b3", 1)
        checkpoints = cast(Any, SimpleNamespace(saved=CHECKPOINT))
        service = SnapshotService(stage.ctx, stage.replica)
        self.lost = LostPayloads(stage.ctx, stage.replica, service, checkpoints)
        stage.ctx.take()

    def met(self, chunk: int = 0, upload: int = UPLOAD) -> list[str]:
        """A chunk for b3 is not found; returns what comes of it."""
        stage = self.stage
        self.lost.missed_chunk(stage.peer("b3"), upload, chunk)
        [read] = [effect.request for effect in stage.ctx.take() if isinstance(effect, Read)]
        assert isinstance(read, ReadLog)
        found = [LogEntry(self.record)] if read.from_sequence == 2 else []
        stage.ctx.read_done(read.token, LogRead(read.token, UID, read.from_sequence, found), stage.now)
        effects = stage.ctx.take()
        offers = [e.message for e in effects if isinstance(e, SendPeer)]
        assert all(isinstance(each, SnapshotChunk) and each.applied == CHECKPOINT for each in offers)
        told = [effect.event for effect in effects if isinstance(effect, Log)]
        return [event for event in told if event == "payload.unreadable"] + ["offered"] * len(offers)


def test_an_heir_leads_and_this_broker_does_not_at_once_lead_again() -> None:
    leader = Leader("b2", "b3")
    assert leader.met() == ["payload.unreadable"]
    assert not leader.stage.replica.is_leader
    assert leader.stage.ctx.step_aside_until_us == leader.stage.mono_us + limits.HANDOVER_MS * 1000


def test_a_snapshot_is_offered_only_after_two_minutes_of_tries_and_then_whenever_the_follower_asks() -> None:
    leader = Leader("b2")
    told, offered_ms = 0, []
    for ms in range(0, 140_000, 2_000):
        came = leader.met(1)
        told += came.count("payload.unreadable")
        offered_ms += [ms] * came.count("offered")
        leader.stage.mono_us += 2_000_000
    assert told == 6
    assert offered_ms == list(range(124_000, 140_000, 2_000))


def test_no_chunk_is_missed_behind_the_end_of_an_upload_or_of_one_that_the_follower_has() -> None:
    leader = Leader("b2")
    assert leader.met(2) == []
    assert leader.met(0, UPLOAD + 1) == []
    leader.stage.acked_by("b3", 2)
    assert leader.met() == []


def test_a_member_of_the_isr_is_offered_nothing() -> None:
    """It leaves the ISR first; a commit might count on what it would throw away."""
    leader = Leader("b2", "b3")
    for _ in range(100):
        leader.stage.mono_us += 2_000_000  # too few are heard for another leader
        assert "offered" not in leader.met()
    assert leader.stage.replica.is_leader


def test_a_lost_record_is_told_once_where_nobody_else_can_lead() -> None:
    leader = Leader("b2")
    leader.stage.mono_us += limits.REPLICA_LAG_MS * 1000 + 1
    for _ in range(2):
        leader.lost.missed_record(leader.stage.peer("b3"), 2, leader.stage.now)
    assert leader.stage.replica.is_leader
    effects = leader.stage.ctx.take()
    assert [effect.event for effect in effects if isinstance(effect, Log)] == ["payload.unreadable"]
    assert not [effect for effect in effects if isinstance(effect, SendPeer)]


def test_nothing_is_done_while_nobody_could_be_elected() -> None:
    leader = Leader("b2")
    leader.stage.ctx.coordinator = CoordinatorState.SUSPENDED
    assert leader.met() == []
    leader.lost.missed_record(leader.stage.peer("b3"), 2, leader.stage.now)
    assert not leader.stage.ctx.take()


def test_a_leader_that_is_deposed_while_it_looks_does_nothing() -> None:
    leader = Leader("b2")
    leader.lost.missed_chunk(leader.stage.peer("b3"), UPLOAD, 0)
    [read] = [effect.request for effect in leader.stage.ctx.take() if isinstance(effect, Read)]
    leader.stage.replica.give_up(leader.stage.now, "a test")
    leader.stage.ctx.take()
    found = [LogEntry(leader.record)]
    leader.stage.ctx.read_done(read.token, LogRead(read.token, UID, 2, found), leader.stage.now)
    assert not [e for e in leader.stage.ctx.take() if isinstance(e, (SendPeer, Log))]

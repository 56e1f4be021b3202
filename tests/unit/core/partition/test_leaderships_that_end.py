"""What a replica leaves behind when its leadership ends, its topic is deleted, or a snapshot has filled it."""

from __future__ import annotations

from typing import TypeVar
from zlib import crc32

import numpy as np
import pytest

from dueq.core.delivery.dispatch import TopicDispatcher
from dueq.core.partition.partition import Partition
from dueq.core.ports.effects import Coordinate, Effect, Persist, Read, SendClient
from dueq.core.ports.entry import NO_ENTRIES, Entries
from dueq.core.ports.events import Route
from dueq.core.ports.membership import CompareAndSet, PartitionAssignment, Topic
from dueq.core.ports.persistence import (
    EntriesRead,
    PartitionRead,
    ReadEntries,
    ReadPartition,
    RecoveredPartition,
    SaveCheckpoint,
    StoreRead,
)
from dueq.core.state.cold import ColdIds
from dueq.core.state.summary import Summary
from dueq_codecs.digest import request_digest
from dueq_codecs.messages import (
    Append,
    ChangeReply,
    ChangeRequest,
    ChunkReply,
    ChunkRequest,
    Code,
    SnapshotChunk,
)
from dueq_codecs.records import LogEntry, Record, RecordKind, RequestRef
from tests.unit.core import replica_stage
from tests.unit.core.replica_stage import UID, filled

TOPIC = Topic("t", "0" * 32, "timeline", (PartitionAssignment(UID, ("b1", "b2", "b3")),), 3, 2)
CLIENT = b"c" * 16
Wanted = TypeVar("Wanted", bound=StoreRead)


class Stage(replica_stage.Stage):
    """A whole partition on the stage of its replica."""

    def __init__(self, recovered: RecoveredPartition | None = None) -> None:
        super().__init__()
        self.ctx.take()
        self.dispatcher = TopicDispatcher("t", "b1", 11, self.ctx.metrics, self.ctx.new_token)
        self.partition = Partition(self.ctx, TOPIC, 0, self.dispatcher, recovered, self.now)
        self.replica = self.partition.replica
        self.answers: list[ChangeReply | ChunkReply] = []
        self.reads: list[StoreRead] = []
        self.writes: list[object] = []

    def begin_write(self) -> int:
        self.partition.end_turn(self.now)
        self.ctx.close_writes()
        self._collect()
        return self._token

    def sync(self) -> None:
        self.ctx.persisted(self.begin_write(), self.now)
        self._collect()

    def _collect(self) -> None:
        for effect in self.ctx.take():
            self._noted(effect)

    def _noted(self, effect: Effect) -> None:
        if isinstance(effect, Coordinate) and isinstance(effect.order, CompareAndSet):
            self.orders.append(effect.order)
        elif isinstance(effect, SendClient) and isinstance(effect.message, ChangeReply | ChunkReply):
            self.answers.append(effect.message)
        elif isinstance(effect, Read):
            self.reads.append(effect.request)
        elif isinstance(effect, Persist):
            self.writes += effect.writes
            self._token = effect.token

    def serve(self) -> None:
        """Lead, with the barrier applied."""
        self.lead("b1", "b2", "b3")
        self.acked()
        assert self.partition.serving

    def acked(self) -> None:
        """All that is in the log is synced here and at the followers."""
        self.sync()
        for name in ("b2", "b3"):
            self.acked_by(name, self.replica.end)
        self.partition.committed(self.now)
        self.sync()

    def insert(self, number: int = 1, body: bytes = b"x") -> None:
        """A client schedules one message."""
        request = ChangeRequest(number, RecordKind.INSERT, "t", UID, CLIENT, number, 0)
        request.due = np.array([self.now.wall_ms + 3_600_000], np.uint64)
        request.size, request.crc = np.array([len(body)], np.uint32), np.array([crc32(body)], np.uint32)
        request.digest = request_digest(request)
        assert self.partition.request(Route(b"client"), request, [body], self.now) is None

    def codes(self) -> list[Code]:
        self._collect()
        return [answer.code for answer in self.answers]

    def replaced(self) -> None:
        """Another broker leads."""
        self.node("b2", 2, "b1", "b2", "b3", version=5)
        self._collect()

    def wanted(self, kind: type[Wanted]) -> list[Wanted]:
        """Take the reads of this kind."""
        found = [read for read in self.reads if isinstance(read, kind)]
        self.reads = [read for read in self.reads if not isinstance(read, kind)]
        return found

    def saved(self) -> list[int]:
        """Up to which records the checkpoints go that were ordered."""
        return [write.applied for write in self.writes if isinstance(write, SaveCheckpoint)]


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.serve()
    return stage


def cold() -> ColdIds:
    """The id of a message that only the disk may have."""
    return ColdIds(np.array([1_000], np.uint64), np.array([1], np.uint64), np.array([0], np.uint16))


def with_one_on_the_disk(applied: int, epoch: int) -> RecoveredPartition:
    """A replica of whose messages one is not in memory."""
    found = filled(applied, epoch)
    found.summary, found.unproven = Summary(1_000, level=2, dead=1).pack(), False
    return found


# ---------------------------------------------------------------- the leadership is lost


def test_who_waits_for_a_record_is_told_that_its_outcome_is_unknown(stage: Stage) -> None:
    """The record may be committed by the next leader. What is in no record yet is to be sent to that one."""
    stage.insert(1)
    stage.sync()
    stage.insert(2)
    stage.replaced()
    assert stage.codes() == [Code.OUTCOME_UNKNOWN, Code.NOT_LEADER]


def test_who_looks_a_message_up_is_told_that_nobody_knows_and_only_once() -> None:
    stage = Stage(with_one_on_the_disk(1, 0))
    stage.serve()
    told: list[Entries | None] = []
    stage.partition.look_up(cold(), lambda rows, now: told.append(rows), stage.now)
    stage._collect()
    [read] = stage.wanted(ReadEntries)
    stage.replaced()
    assert told == [None]
    stage.ctx.read_done(read.token, EntriesRead(read.token, UID, NO_ENTRIES), stage.now)
    assert told == [None]


def test_who_waits_for_a_checkpoint_is_not_called_once_another_broker_leads(stage: Stage) -> None:
    """It would browse what is not served here any more."""
    called: list[str] = []
    stage.insert()
    stage.acked()
    stage.partition.once_saved(lambda hidden, now: called.append("saved"), stage.now)
    stage.replaced()
    stage.sync()
    stage.sync()
    assert called == []


def test_who_waits_for_a_chunk_is_sent_to_the_next_leader(stage: Stage) -> None:
    body = bytes(1 << 18)
    request = ChunkRequest(
        request_id=7, topic="t", uid=UID, client_id=CLIENT, upload=0, chunk=0, chunks=2, size=(1 << 18) + 5,
        crc=crc32(body),
    )  # fmt: skip
    assert stage.partition.chunk(Route(b"client"), request, [body], stage.now) is None
    stage.replaced()
    assert stage.codes() == [Code.NOT_LEADER]


def test_nothing_of_it_is_delivered_here_and_it_is_looked_after(stage: Stage) -> None:
    """It may be this broker that has to stand for it."""
    stage.insert()
    stage.acked()
    assert stage.dispatcher.leads
    stage.ctx.attention.clear()
    stage.replaced()
    assert not stage.dispatcher.leads
    assert UID in stage.ctx.attention


# ---------------------------------------------------------------- the topic is deleted


def test_who_waits_is_answered_when_the_topic_is_deleted(stage: Stage) -> None:
    stage.insert(1)
    stage.sync()
    stage.partition.close(stage.now)
    assert stage.codes() == [Code.OUTCOME_UNKNOWN]
    assert not stage.dispatcher.leads
    assert not stage.partition.serving


def test_nothing_is_written_of_a_topic_that_was_deleted(stage: Stage) -> None:
    """Its rows are gone by then: a checkpoint that came after them would be the only thing that is left."""
    stage.insert()
    stage.acked()
    stage.partition.close(stage.now)
    stage.writes.clear()
    stage.mono_us += 60_000_000
    stage.sync()
    assert stage.writes == []


def test_a_checkpoint_that_is_saved_after_the_end_of_a_topic_wakes_nobody(stage: Stage) -> None:
    stage.insert()
    stage.acked()
    stage.mono_us += 60_000_000
    token = stage.begin_write()
    assert stage.saved() == [stage.partition.applied]
    stage.partition.close(stage.now)
    stage.ctx.touched.clear()
    stage.ctx.persisted(token, stage.now)
    assert UID not in stage.ctx.touched


# ---------------------------------------------------------------- a snapshot has filled it


def unreadable() -> Stage:
    """A replica whose state a newer build has written."""
    recovered = filled(0, 1)
    recovered.unknown, recovered.uploads = "entries of 999 bytes", [5]
    stage = Stage(recovered)
    assert stage.partition.broken
    return stage


def fill(stage: Stage, recovered: RecoveredPartition) -> None:
    """A leader offers a snapshot and sends it; this is what the store has of it then."""
    offer = SnapshotChunk("b2", 22, UID, 1, 0, 0, 9, 1, False, Code.OK)
    stage.partition.snapshot_received(stage.peer("b2"), offer, b"", stage.now)
    stage.sync()
    part = SnapshotChunk("b2", 22, UID, 1, 5, 0, 9, 1, True, Code.OK)
    stage.partition.snapshot_received(stage.peer("b2"), part, b"", stage.now)
    stage.sync()
    [wanted] = stage.wanted(ReadPartition)
    stage.ctx.read_done(wanted.token, PartitionRead(wanted.token, UID, recovered), stage.now)
    stage._collect()


def test_uploads_stay_that_a_state_may_name_which_cannot_be_read() -> None:
    assert unreadable().partition.uploads.idle


def test_a_replica_that_is_filled_with_what_it_cannot_read_applies_nothing() -> None:
    stage = unreadable()
    recovered = filled(9, 1)
    recovered.unknown = "entries of 998 bytes"
    fill(stage, recovered)
    assert "998 bytes" in stage.partition.broken


def test_a_replica_that_could_not_read_its_state_goes_on_from_a_snapshot() -> None:
    """What it was filled with is its state: records are applied to that, and checkpoints are made of it."""
    stage = unreadable()
    recovered = with_one_on_the_disk(9, 1)
    recovered.unproven, recovered.uploads = True, [77]
    fill(stage, recovered)
    assert (stage.partition.broken, stage.partition.applied) == ("", 9)
    assert stage.partition.checkpoints.saved == 9
    assert not stage.partition.uploads.idle, "what nothing names is to be dropped"

    cancel = Record(RecordKind.CANCEL, UID, 10, 1, 500)
    cancel.first, cancel.target_sequence, cancel.target_row = cold()
    cancel.token = np.zeros(1, np.uint64)
    cancel.requests = (RequestRef(CLIENT, 1, 1, 1),)
    append = Append(UID, 1, 9, 1, 10, [LogEntry(cancel)])
    stage.partition.append_received(stage.peer("b2"), append, stage.now)
    stage.sync()
    assert stage.partition.applied == 9, "the message is to be read"
    for read in stage.wanted(ReadEntries):
        stage.ctx.read_done(read.token, EntriesRead(read.token, UID, NO_ENTRIES), stage.now)
    assert stage.partition.applied == 10
    stage.mono_us += 60_000_000
    stage.sync()
    assert stage.saved() == [10]

"""The uploads that one replica believes to be on its disk, and those that it drops."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from dueq import limits
from dueq.core.partition.uploads import Uploads
from dueq.core.ports.effects import Persist, Read, SendClient, SendPeer
from dueq.core.ports.events import Route
from dueq.core.ports.persistence import ChunkRead, DropUpload, ReadChunk
from dueq_codecs.messages import ChunkReply, ChunkRequest, Code, UploadAck, UploadChunk
from dueq_codecs.records import LogEntry, Record, RecordKind
from tests.unit.core.replica_stage import UID, Stage

UPLOAD = 1 << 32 | 1


class Follower:
    """Broker b1, which follows b2 and is sent uploads."""

    def __init__(self, *orphans: int) -> None:
        self.stage = Stage()
        self.uploads = Uploads(self.stage.ctx, self.stage.replica, list(orphans), self.stage.now)
        self._token = 0
        self._orders: list[Persist] = []

    def chunk(self, index: int, epoch: int = 1, crc: int = crc32(b"chunk")) -> None:
        """A chunk comes from the leader."""
        message = UploadChunk("b2", 22, UID, epoch, UPLOAD, index, 2, crc)
        self.uploads.chunk_from_leader(self.stage.peer("b2"), message, b"chunk", self.stage.now)

    def sync(self) -> list[object]:
        """The turn's writes reach the disk; returns them."""
        self.stage.ctx.close_writes()
        writes = [w for e in self.stage.ctx.take() if isinstance(e, Persist) for w in e.writes]
        self._token += 1
        self.stage.ctx.persisted(self._token, self.stage.now)
        return list(writes)

    def dropped_after(self, ms: int) -> bool:
        """Whether anything is dropped when so much time has passed."""
        self.stage.mono_us += ms * 1000
        self.uploads.tick(self.stage.now)
        return any(isinstance(write, DropUpload) for write in self.sync())

    def lacks(self, chunks: int) -> bool:
        """Whether a record that names the upload would have to wait."""
        record = Record(RecordKind.INSERT, UID, 1, 1, 0)
        record.upload = np.array([UPLOAD], np.uint64)
        record.size = np.array([limits.CHUNK_BYTES * chunks], np.uint32)
        return self.uploads.missing(LogEntry(record), "b2", self.stage.now)


def lead_a_whole_upload(leader: Follower) -> None:
    """It has come to a leader, whose members have acked all of it."""
    leader.stage.lead("b2", "b3")
    for chunk, upload in ((0, 0), (1, UPLOAD)):
        led_upload(leader.stage, leader.uploads, upload, chunk)
        for name in ("b2", "b3"):
            leader.uploads.acked(leader.stage.peer(name), UploadAck(UID, UPLOAD, chunk))
        leader.stage.sync()


def test_a_follower_that_was_silent_while_a_chunk_was_read_for_it_may_ask_again() -> None:
    """What was begun for it is given up, and must not be taken for under way."""
    leader = Follower()
    stage, missed = leader.stage, list[object]()
    stage.lead("b2", "b3")

    def ask() -> list[ReadChunk]:
        leader.uploads.wanted(stage.peer("b3"), UPLOAD, lambda *lost: missed.append(lost))
        orders = [effect.request for effect in stage.ctx.take() if isinstance(effect, Read)]
        return [order for order in orders if isinstance(order, ReadChunk)]

    [read] = ask()
    stage.mono_us += limits.LEADER_SILENCE_MS * 1000 + 1
    stage.ctx.read_done(read.token, ChunkRead(read.token, UID, UPLOAD, 0, b"chunk"), stage.now)
    assert not any(isinstance(effect, SendPeer) for effect in stage.ctx.take())
    stage.peer("b3").heard_at_us = stage.mono_us
    assert len(ask()) == 1
    assert not missed


def test_a_chunk_that_is_wiped_before_it_is_synced_does_not_count() -> None:
    """An installation that begins in between deletes it: the record must not be taken for complete."""
    follower = Follower()
    follower.chunk(0)
    follower.uploads.wiped()
    follower.sync()
    assert follower.lacks(1)
    assert not follower.stage.peer("b2").upload_acks
    follower.chunk(0)
    follower.sync()
    assert not follower.lacks(1)


def test_nothing_is_dropped_while_a_replica_is_installed() -> None:
    """The chunks may be among the rows that have come, and what names them among those that have not."""
    follower = Follower(UPLOAD)
    follower.stage.replica.installing = True
    assert not follower.dropped_after(limits.UPLOAD_IDLE_MS + 1)
    follower.stage.replica.installing = False
    assert follower.dropped_after(1)


def test_what_the_log_names_is_held_no_more_and_forgotten_with_its_record() -> None:
    follower = Follower(UPLOAD)
    follower.uploads.named(UPLOAD, 7)
    follower.chunk(0)
    assert not follower.dropped_after(limits.UPLOAD_IDLE_MS + 1)
    assert follower.uploads.idle
    follower.uploads.trimmed(8)
    follower.chunk(0)
    follower.sync()
    assert follower.dropped_after(limits.UPLOAD_IDLE_MS + 1)


def test_what_the_log_named_before_a_wipe_is_taken_again_after_it() -> None:
    """Its chunks are gone with it. Else a record that names it could never be taken."""
    follower = Follower(UPLOAD)
    follower.uploads.named(UPLOAD, 7)
    follower.uploads.wiped()
    follower.chunk(0)
    follower.sync()
    assert not follower.lacks(1)


def test_a_damaged_chunk_is_not_kept() -> None:
    follower = Follower()
    follower.chunk(0, crc=crc32(b"chunk") ^ 1)
    follower.sync()
    assert follower.lacks(1)


def test_a_chunk_of_a_leader_that_was_replaced_is_not_acked() -> None:
    """Its client would be told that every member has it, and the present leader knows of no such upload."""
    follower = Follower()
    follower.stage.append("b3", 2, (0, 0))
    follower.chunk(0, epoch=1)
    follower.sync()
    assert not follower.stage.peer("b2").upload_acks


def led_upload(stage: Stage, uploads: Uploads, upload: int, chunk: int) -> None:
    """A client sends a chunk of an upload of two."""
    size = limits.CHUNK_BYTES + 1
    request = ChunkRequest(1, "t", UID, b"c" * 16, upload, chunk, 2, size, crc32(b"chunk"))
    assert uploads.chunk_received(Route(b"c"), request, b"chunk", stage.now) is None


def test_a_chunk_that_is_everywhere_is_answered_at_once_and_not_written_again() -> None:
    """Its client has lost the answer. A member that is silent by now must not keep it from going on."""
    leader = Follower()
    stage = leader.stage
    stage.lead("b2", "b3")
    led_upload(stage, leader.uploads, 0, 0)
    for name in ("b2", "b3"):
        leader.uploads.acked(stage.peer(name), UploadAck(UID, UPLOAD, 0))
    stage.sync()
    led_upload(stage, leader.uploads, UPLOAD, 0)
    stage.ctx.close_writes()
    [effect] = stage.ctx.take()
    assert isinstance(effect, SendClient)
    assert isinstance(effect.message, ChunkReply)
    assert (effect.message.code, effect.message.upload, effect.message.chunk) == (Code.OK, UPLOAD, 0)


def test_chunks_of_a_leadership_that_has_ended_are_dropped_if_nobody_names_them() -> None:
    follower = Follower()
    follower.stage.lead("b2", "b3")
    led_upload(follower.stage, follower.uploads, 0, 0)
    follower.sync()
    follower.uploads.leadership_lost()
    assert not follower.uploads.idle
    assert follower.dropped_after(limits.UPLOAD_IDLE_MS + 1)
    assert follower.uploads.idle


def test_an_upload_lasts_for_as_long_as_its_chunks_come() -> None:
    follower = Follower()
    follower.stage.lead("b2", "b3")
    led_upload(follower.stage, follower.uploads, 0, 0)
    assert not follower.dropped_after(limits.UPLOAD_IDLE_MS - 1)
    led_upload(follower.stage, follower.uploads, UPLOAD, 1)
    assert not follower.dropped_after(limits.UPLOAD_IDLE_MS - 1)
    assert follower.dropped_after(2)


def test_a_chunk_that_comes_twice_is_acked_twice() -> None:
    """The first ack may be lost: the leader would repeat the chunk for ever, and its client wait."""
    follower = Follower()
    for _ in range(2):
        follower.chunk(0)
        follower.sync()
        assert [ack.chunk for ack in follower.stage.peer("b2").upload_acks] == [0]
        follower.stage.peer("b2").upload_acks.clear()


def test_a_whole_upload_of_a_leadership_that_has_ended_can_be_named_by_the_next_leader() -> None:
    follower = Follower()
    lead_a_whole_upload(follower)
    assert follower.uploads.complete(UPLOAD, b"c" * 16, limits.CHUNK_BYTES + 1)
    follower.uploads.leadership_lost()
    assert not follower.lacks(2)
    assert follower.dropped_after(limits.UPLOAD_IDLE_MS + 1)


def test_a_record_waits_for_each_of_its_chunks() -> None:
    """A record that is taken without one is acked, and its payload may be on no disk when the leader dies."""
    follower = Follower()
    assert follower.lacks(2)
    for chunk, lacking in ((0, True), (1, False)):
        follower.chunk(chunk)
        follower.sync()
        assert follower.lacks(2) is lacking


def test_what_a_record_of_the_log_names_is_held_until_that_very_record_is_trimmed() -> None:
    follower = Follower()
    follower.uploads.named(UPLOAD, 7)
    follower.uploads.trimmed(7)
    follower.chunk(0)
    follower.sync()
    assert not follower.dropped_after(limits.UPLOAD_IDLE_MS + 1)


def test_what_a_record_named_that_was_cut_off_is_taken_again() -> None:
    """The next leader may have it sent anew, and wait for an ack."""
    follower = Follower()
    follower.uploads.named(UPLOAD, 7)
    follower.uploads.orphaned([UPLOAD], follower.stage.now)
    follower.chunk(0)
    follower.sync()
    assert [ack.chunk for ack in follower.stage.peer("b2").upload_acks] == [0]


def test_an_upload_that_was_dropped_is_named_by_nobody() -> None:
    """Its chunks leave the disk: the message would have no payload."""
    leader = Follower()
    lead_a_whole_upload(leader)
    assert leader.dropped_after(limits.UPLOAD_IDLE_MS + 1)
    assert not leader.uploads.complete(UPLOAD, b"c" * 16, limits.CHUNK_BYTES + 1)


def test_a_chunk_is_answered_by_the_ack_that_makes_it_safe() -> None:
    """A client sends few chunks at a time: each that waits for a tick would slow the upload down."""
    leader = Follower()
    stage = leader.stage
    stage.lead("b2", "b3")
    led_upload(stage, leader.uploads, 0, 0)
    stage.sync()
    for name, answered in (("b2", False), ("b3", True)):
        leader.uploads.acked(stage.peer(name), UploadAck(UID, UPLOAD, 0))
        assert any(isinstance(effect, SendClient) for effect in stage.ctx.take()) is answered

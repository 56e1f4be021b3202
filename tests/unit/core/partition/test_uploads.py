"""Long payloads in a mesh: what is kept, what is dropped, who is asked for what, and who is answered."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import numpy as np
import pytest

from dueq import limits
from dueq.core.ports.events import Event, PeerFrameReceived
from dueq.core.ports.persistence import StoreRead
from dueq.storage.ordered import layout
from dueq_chaos.scenarios.hand import Bodies, Hand
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.digest import request_digest
from dueq_codecs.messages import (
    BrokerMessage,
    ChangeReply,
    ChangeRequest,
    ChunkReply,
    ChunkRequest,
    Code,
    UploadChunk,
)
from dueq_codecs.records import RecordKind

FAR_MS = 86_400_000
IDLE_MS = 60_000
CLIENT = b"c" * 16


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nothing names is dropped after a minute: a quarter of an hour of a mesh is 15 times as much work."""
    monkeypatch.setattr(limits, "UPLOAD_IDLE_MS", IDLE_MS)


class Uploader(Hand):
    """A client that uploads one payload, chunk by chunk, and then names it."""

    def __init__(self, stage: Stage, body: bytes) -> None:
        super().__init__(stage, "uploader")
        stage.hands["uploader"] = self
        self.mesh, self.body = stage, body
        self.upload = 0
        self._asked = 0
        self._answers: dict[int, ChunkReply | ChangeReply] = {}

    def received(self, message: BrokerMessage, bodies: Bodies) -> None:
        if isinstance(message, ChunkReply | ChangeReply):
            self._answers[message.request_id] = message

    @property
    def chunks(self) -> int:
        return -(-len(self.body) // limits.CHUNK_BYTES)

    def ask(self, index: int) -> int:
        """Send one chunk to the leader; returns the request's number."""
        self._asked += 1
        data = self.body[index * limits.CHUNK_BYTES :][: limits.CHUNK_BYTES]
        request = ChunkRequest(
            request_id=self._asked, topic=self.mesh.topic, uid=self.mesh.uid, client_id=CLIENT,
            upload=self.upload, chunk=index, chunks=self.chunks, size=len(self.body), crc=crc32(data),
        )  # fmt: skip
        self.send(self.mesh.leader, request, [data])
        return self._asked

    def code(self, request: int) -> Code | None:
        """The answer to a request."""
        reply = self._answers.get(request)
        return reply.code if reply is not None else None

    def put(self, index: int) -> None:
        """Send one chunk and wait until it is everywhere."""
        request = self.ask(index)
        self.mesh.until(lambda: self.code(request) is not None, f"an answer to chunk {index}")
        reply = self._answers[request]
        assert isinstance(reply, ChunkReply)
        self.mesh.expect(reply.code is Code.OK, "the chunk is taken")
        self.upload = reply.upload

    def name_it(self, due_ms: int = FAR_MS, sequence: int = 1, code: Code = Code.OK) -> None:
        """Insert the message that names the upload, due in so long."""
        self._asked += 1
        change = ChangeRequest(
            self._asked, RecordKind.INSERT, self.mesh.topic, self.mesh.uid, CLIENT, sequence, 0
        )
        change.due = np.array([self.mesh.now_ms + due_ms], np.uint64)
        change.size = np.array([len(self.body)], np.uint32)
        change.crc = np.array([crc32(self.body)], np.uint32)
        change.upload = np.array([self.upload], np.uint64)
        change.digest = request_digest(change)
        self.send(self.mesh.leader, change)
        self.mesh.until(lambda: self.code(change.request_id) is code, code.name)

    def on_disk(self) -> dict[str, int]:
        """How many of the chunks each broker's disk holds."""
        prefix = layout.chunk_key(self.mesh.uid, self.upload, 0)[:-2]
        return {
            name: len(list(node.disk.payload.keys(prefix, layout.after(prefix))))
            for name, node in self.mesh.nodes.items()
        }


def chunks_of(event: Event) -> bool:
    return isinstance(event, PeerFrameReceived) and isinstance(event.message, UploadChunk)


def two_chunks(stage: Stage) -> Uploader:
    return Uploader(stage, b"z" * (limits.CHUNK_BYTES + 100))


def tended(stage: Stage) -> None:
    """Give every replica cause for periodic care: a record to apply, and no checkpoint due yet."""
    stage.stored(b"a record")
    stage.stored(b"another")
    stage.run_ms(5_000)


# ---------------------------------------------------------------- what is kept


@pytest.mark.parametrize("late_ms", [500, 10_000], ids=["before a checkpoint", "after a checkpoint"])
def test_a_chunk_that_comes_after_its_record_costs_no_payload(late_ms: int) -> None:
    """A repeat of a chunk made the upload look like one that nothing names; it was dropped once idle."""
    stage = Stage()
    uploader = two_chunks(stage)
    seen = stage.watch("b2", chunks_of)
    uploader.put(0)
    uploader.put(1)
    uploader.name_it()
    stage.run_ms(late_ms)
    for event in list(seen.events):
        stage.nodes["b2"].receive(event)
    stage.run_ms(IDLE_MS + 60_000)
    tended(stage)
    assert uploader.on_disk() == {"b1": 2, "b2": 2, "b3": 2}
    stage.finish()


def test_an_upload_is_named_once() -> None:
    """The end of the first message would delete the payload of the second one."""
    stage = Stage()
    uploader = two_chunks(stage)
    uploader.put(0)
    uploader.put(1)
    uploader.name_it()
    uploader.name_it(sequence=2, code=Code.UNKNOWN_UPLOAD)
    stage.finish()


def test_chunks_that_nothing_ever_names_are_dropped_everywhere() -> None:
    stage = Stage()
    uploader = two_chunks(stage)
    uploader.put(0)
    stage.run_ms(IDLE_MS + 60_000)
    assert uploader.on_disk() == {"b1": 0, "b2": 0, "b3": 0}
    stage.finish()


def test_an_upload_held_before_an_installation_is_not_dropped_after_it() -> None:
    """The chunks are gone, and the record that names them may come with the installation."""
    stage = Stage(log_retain_bytes=0)
    uploader = two_chunks(stage)
    uploader.put(0)
    uploader.put(1)
    stage.isolate("b3")
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    uploader.name_it()
    for _ in range(4):
        stage.stored(b"x")
        stage.run_ms(limits.SNAPSHOT_IDLE_MS)
    stage.expect(stage.replica("b1").replica.log.start > 3, "the record is gone from the log")
    stage.network.heal()
    stage.until(lambda: stage.told("b3", "replica.installed"), "an installation")
    stage.run_ms(IDLE_MS + 60_000)
    tended(stage)
    assert uploader.on_disk() == {"b1": 2, "b2": 2, "b3": 2}
    stage.finish()


# ---------------------------------------------------------------- who is answered


def test_an_upload_goes_on_when_a_member_of_the_isr_dies_in_the_middle_of_it() -> None:
    """Once the ISR had shrunk, the chunk was never looked at again, and retries only joined those who waited."""
    stage = Stage()
    uploader = two_chunks(stage)
    uploader.put(0)
    stage.nodes["b3"].crash()
    uploader.put(1)
    assert stage.isr() == ["b1", "b2"]
    uploader.name_it()
    stage.nodes["b3"].start()
    stage.finish()
    assert uploader.on_disk() == {"b1": 2, "b2": 2, "b3": 2}


def test_a_chunk_that_is_asked_for_again_and_again_is_remembered_a_few_times() -> None:
    """While a member of the ISR lacks it nobody is answered: the last ones who asked are, then."""
    stage = Stage(replicas=2, min_isr=2)
    uploader = two_chunks(stage)
    uploader.put(0)
    stage.isolate("b2")
    asked = [uploader.ask(1) for _ in range(40)]
    stage.run_ms(500)
    stage.network.heal()
    stage.run_ms(1_000)
    assert sum(uploader.code(number) is Code.OK for number in asked) == 16


# ---------------------------------------------------------------- who is asked for what


def behind(monkeypatch: pytest.MonkeyPatch, chunks: int, size: int = 0) -> Stage:
    """A mesh in which b3 lacks an upload of so many (tiny) chunks, and the record that names it."""
    monkeypatch.setattr(limits, "CHUNK_BYTES", 256)
    stage = Stage()
    stage.isolate("b3")
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    uploader = Uploader(stage, b"z" * (size or 256 * chunks - 1))
    for index in range(chunks):
        uploader.put(index)
    uploader.name_it()
    return stage


def level(stage: Stage) -> bool:
    return stage.replica("b3").replica.log.end == stage.replica("b1").replica.log.end


def test_a_follower_that_lacks_an_upload_is_sent_it_once_however_long_that_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asked again every 2 s, each time for everything, and the answers slowed each other down."""
    stage = behind(monkeypatch, chunks=48)
    disk, free_us = stage.nodes["b1"].disk, 0
    read = disk.read

    def slowly(request: StoreRead, done: Callable[[Event], None]) -> None:
        nonlocal free_us
        free_us = max(free_us, stage.world.now_us) + 150_000
        stage.world.at(free_us, lambda: read(request, done))

    monkeypatch.setattr(disk, "read", slowly)
    sent = stage.watch("b3", chunks_of)
    stage.network.heal()
    stage.until(lambda: level(stage), "the record at b3")
    stage.run_ms(10_000)
    assert len(sent.events) == 48
    stage.finish()


def test_a_follower_asks_again_for_what_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = behind(monkeypatch, chunks=8)

    def the_fifth(event: Event) -> bool:
        return (
            isinstance(event, PeerFrameReceived)
            and isinstance(event.message, UploadChunk)
            and event.message.chunk == 5
        )

    lost = stage.hold("b3", the_fifth)
    stage.network.heal()
    stage.until(lambda: lost.events, "the chunk")
    lost.forget()
    stage.until(lambda: level(stage), "the record at b3")
    stage.finish()


def test_an_upload_whose_last_chunk_is_full_is_not_taken_for_a_lost_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader reads on behind it, as it does not know how many chunks there are."""
    stage = behind(monkeypatch, chunks=2, size=512)
    stage.network.heal()
    stage.until(lambda: level(stage), "the record at b3")
    stage.run_ms(5_000)
    assert stage.leader == "b1"
    assert not stage.told("b1", "payload.unreadable")
    stage.finish()


# ---------------------------------------------------------------- how much is taken


def test_an_abandoned_upload_keeps_no_room_for_what_it_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four clients that died after their first chunk made a partition busy for a quarter of an hour."""
    monkeypatch.setattr(limits, "UPLOADS_BYTES_MAX", 8 * limits.CHUNK_BYTES)
    stage = Stage()
    Uploader(stage, b"z" * (8 * limits.CHUNK_BYTES)).put(0)
    second = Uploader(stage, b"y" * (2 * limits.CHUNK_BYTES))
    refused = second.ask(0)
    stage.until(lambda: second.code(refused) is not None, "an answer")
    assert second.code(refused) is Code.BUSY
    stage.run_ms(31_000)
    second.put(0)
    second.put(1)
    second.name_it()
    stage.finish()


# ---------------------------------------------------------------- what cannot be read


def lose(stage: Stage, broker: str, upload: int) -> None:
    """A broker's disk loses the chunks."""
    payload = stage.nodes[broker].disk.payload
    prefix = layout.chunk_key(stage.uid, upload, 0)[:-2]
    payload.write([(key, None) for key in list(payload.keys(prefix, layout.after(prefix)))], sync=True)


def attached(stage: Stage) -> Hand:
    """A consumer at every broker."""
    hand = stage.hand("consumer")
    for broker in stage.names:
        hand.attach(broker)
    hand.stay()
    return hand


def test_a_leader_that_cannot_read_a_payload_lets_another_replica_deliver_it() -> None:
    stage = Stage()
    uploader = two_chunks(stage)
    uploader.put(0)
    uploader.put(1)
    uploader.name_it(due_ms=5_000)
    lose(stage, "b1", uploader.upload)
    consumer = attached(stage)
    stage.until(lambda: consumer.pushes, "a delivery")
    assert consumer.pushes[0].broker != "b1"


def test_a_payload_that_nobody_can_read_does_not_drive_leadership_round_and_round() -> None:
    stage = Stage()
    uploader = two_chunks(stage)
    uploader.put(0)
    uploader.put(1)
    uploader.name_it(due_ms=5_000)
    for broker in stage.names:
        lose(stage, broker, uploader.upload)
    consumer = attached(stage)
    epoch = stage.node_of().epoch
    stage.run_ms(240_000)
    assert not consumer.pushes
    assert epoch < stage.node_of().epoch <= epoch + 4
    consumer.fall_silent()
    stage.finish()

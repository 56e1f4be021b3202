"""A led partition whose log commits when the test says so: the dispatcher's other side, with a real timeline."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from dueq.core.delivery.dispatch import TopicDispatcher
from dueq.core.delivery.turns import turns_of
from dueq.core.ports.entry import FLAG_UPLOAD, Entries, keys_of
from dueq.core.ports.events import Route
from dueq.core.ports.persistence import ChunkRead, PayloadsRead, ReadChunk, ReadPayloads
from dueq.core.state.applied import Applied
from dueq.core.state.order import order_of
from dueq.core.state.timeline import Timeline
from dueq.core.turn.mesh_time import MeshTime
from dueq.core.turn.metrics import CoreMetrics
from dueq.instant import Now
from dueq_codecs.messages import BrokerMessage, ConsumerAction, ConsumerFrame, ConsumerReply, Push
from dueq_codecs.records import Record, RecordKind, RequestRef
from dueq_codecs.topic_settings import TopicSettings

START_MS = 1_700_000_000_000
MONO_US = 5_000_000
ALICE = b"a" * 16
BOB = b"b" * 16


def at(ms: int | float) -> Now:
    """The instant so many ms after the start."""
    us = round(ms * 1000)
    return Now(START_MS * 1000 + us, MONO_US + us)


class Led:
    """A partition that this broker leads; nothing commits before `commit`."""

    def __init__(self, uid: int = 1, epoch: int = 1, timeline: Timeline | None = None) -> None:
        self.uid = uid
        self.epoch = epoch
        self.timeline = timeline if timeline is not None else Timeline(uid)
        self.log: list[Record] = []
        self.open: deque[Record] = deque()
        self.full = False
        self.answering = True
        self.asked = 0
        self.leases_from_us = 0
        self.cached = True
        self.payloads: dict[int, bytes] = {}
        self.sequence = self.timeline.applied

    @property
    def settings(self) -> TopicSettings:
        return self.timeline.settings

    @property
    def level(self) -> int:
        return self.timeline.level

    def propose(self, record: Record, now: Now) -> int:
        return 0 if self.full else self.append(record, now)

    def append(self, record: Record, now: Now) -> int:
        """Append what comes from a client (or the leader)."""
        self.sequence += 1
        record.sequence, record.epoch, record.stamp = self.sequence, self.epoch, now.wall_ms
        assert self.timeline.cold(record) is None
        self.open.append(record)
        self.log.append(record)
        return self.sequence

    def confirmed(self, now: Now) -> bool:
        return self.answering

    def ask(self, now: Now) -> None:
        self.asked += 1

    def read_on(self) -> None:
        pass

    def in_touch(self, now: Now) -> bool:
        return self.answering

    def barred(self, rows: Entries) -> npt.NDArray[np.bool_] | None:
        return self.timeline.jobs.barred(rows)

    def cached_payloads(self, entries: Entries) -> list[bytes | memoryview | None]:
        if not self.cached:
            return [None] * len(entries)
        return [self.payloads[key] for key in keys_of(entries).tolist()]

    def change(self, kind: RecordKind, keys: list[int], now: Now, **columns: object) -> Record:
        """Append a client's change of messages."""
        record = Record(kind, self.uid, 0, 0, 0)
        named = np.array(keys, np.uint64)
        record.target_sequence = named >> np.uint64(16)
        record.target_row = (named & np.uint64(0xFFFF)).astype(np.uint16)
        record.first = np.ascontiguousarray(self.timeline.rows(named)["first"])
        record.token = np.zeros(len(keys), np.uint64)
        for name, value in columns.items():
            setattr(record, name, np.array(value, np.uint64))
        record.requests = (RequestRef(b"c" * 16, self.sequence + 1, self.sequence + 1, len(keys)),)
        self.append(record, now)
        return record


class Stage:
    """A dispatcher with its partitions, a clock without peers, and what it has sent."""

    def __init__(self, partitions: int = 1, look_ahead_ms: int = 30, kind: str = "timeline") -> None:
        self.metrics = CoreMetrics()
        self.tokens = 0
        self.instants = False
        self.clock = MeshTime()
        self.look_ahead_ms = look_ahead_ms
        self.dispatcher = TopicDispatcher("t", "b1", 1, self.metrics, self.new_token, turns_of(kind))
        self.leds = {
            uid: Led(uid, timeline=Timeline(uid, order=order_of(kind))) for uid in range(1, partitions + 1)
        }
        self.reads: list[ReadPayloads | ReadChunk] = []
        self.sent: list[tuple[Route, BrokerMessage, list[bytes | memoryview]]] = []
        for led in self.leds.values():
            self.dispatcher.lead(led, at(0))

    def new_token(self) -> int:
        self.tokens += 1
        return self.tokens

    def insert(
        self,
        dues_ms: list[int],
        ms: float = 0,
        uid: int = 1,
        size: int = 4,
        upload: int = 0,
        group: str = "",
        expires_ms: int = 0,
        rank: int = 0,
    ) -> list[int]:
        """Insert messages (due, and perhaps expiring, in ms after the start) and commit; returns their keys."""
        led, now = self.leds[uid], at(ms)
        record = Record(RecordKind.INSERT, uid, 0, 0, 0)
        record.due = np.array([START_MS + due for due in dues_ms], np.uint64)
        record.size = np.full(len(dues_ms), size, np.uint32)
        record.crc = np.zeros(len(dues_ms), np.uint32)
        if upload:
            record.upload = np.full(len(dues_ms), upload, np.uint64)
        if expires_ms:
            record.expires = np.full(len(dues_ms), START_MS + expires_ms, np.uint64)
        if rank:
            record.rank = np.full(len(dues_ms), rank, np.uint16)
        if group:
            record.groups, record.group = (group,), np.zeros(len(dues_ms), np.uint16)
        record.requests = (RequestRef(b"p" * 16, led.sequence + 1, led.sequence + 1, len(dues_ms)),)
        sequence = led.append(record, now)
        keys = [sequence << 16 | row for row in range(len(dues_ms))]
        for key in keys:
            led.payloads[key] = (
                key.to_bytes(8, "big")[-min(size, 8) :].rjust(size, b".") if size < 1 << 20 else b""
            )
        self.commit(ms)
        return keys

    def commit(self, ms: float, uid: int | None = None) -> list[Applied]:
        """Apply everything that is in the logs."""
        done = []
        for led in self.leds.values():
            while led.open and uid in (None, led.uid):
                record = led.open.popleft()
                applied = led.timeline.apply(record)
                self.dispatcher.applied(led.uid, record, applied, at(ms))
                done.append(applied)
        return done

    def tick(self, ms: float, paused: bool = False, recording: bool = False) -> None:
        """Have a turn; where `instants` is set, nothing but pushes if that is all, as the broker has it."""
        now = at(ms)
        if self.instants and not paused and not recording and self.dispatcher.push(now, self.clock):
            self.dispatcher.next_push_us(now)
        else:
            self.dispatcher.tick(now, self.clock, self.look_ahead_ms, paused, recording)
            self.dispatcher.next_deadline_us(now)
        self.sent += self.dispatcher.take_sends()
        self.reads += self.dispatcher.take_reads()

    def run(self, ms: float) -> list[Push]:
        """Tick and commit until nothing more comes of it; returns the pushes."""
        before = len(self.sent)
        for _ in range(4):
            self.tick(ms)
            self.commit(ms)
        self.tick(ms)
        return [
            message for _, message, _ in self.sent[before:] if isinstance(message, Push) and len(message.uid)
        ]

    def frame(
        self, action: ConsumerAction, ms: float, consumer: bytes = ALICE, attach: int = 1, number: int = 1,
        credit: int = 10, credit_bytes: int = 1 << 20, lease_ms: int = 10_000, push_seen: int = 0,
        held: list[tuple[int, int, int]] | None = None, route: Route | None = None, life: int = 0,
        detached: bool = False, aside: int = 0,
    ) -> ConsumerReply | None:  # fmt: skip
        """Hand in a consumer's frame; `held` are (uid, key, token). Returns the reply."""
        frame = ConsumerFrame(
            action, "t", consumer, attach, number, credit, credit_bytes, lease_ms, push_seen, life=life,
            detached=detached, aside=aside,
        )  # fmt: skip
        if held:
            frame.held_uid = np.array([uid for uid, _, _ in held], np.uint32)
            frame.held_sequence = np.array([key >> 16 for _, key, _ in held], np.uint64)
            frame.held_row = np.array([key & 0xFFFF for _, key, _ in held], np.uint16)
            frame.held_token = np.array([token for _, _, token in held], np.uint64)
        self.dispatcher.consumer_frame(route or Route(consumer), frame, at(ms))
        sends = self.dispatcher.take_sends()
        self.sent += sends
        replies = [message for _, message, _ in sends if isinstance(message, ConsumerReply)]
        return replies[0] if replies else None

    def attach(self, ms: float, consumer: bytes = ALICE, **options: object) -> ConsumerReply | None:
        return self.frame(ConsumerAction.ATTACH, ms, consumer, **options)  # type: ignore[arg-type]

    def beat(self, ms: float, consumer: bytes = ALICE, **options: object) -> ConsumerReply | None:
        return self.frame(ConsumerAction.BEAT, ms, consumer, **options)  # type: ignore[arg-type]

    def read_payloads(self, ms: float) -> None:
        """Answer all reads of payloads and chunks."""
        while self.reads:
            request = self.reads.pop(0)
            if isinstance(request, ReadChunk):
                done: PayloadsRead | ChunkRead = ChunkRead(
                    request.token, request.uid, request.upload, request.chunk, b"chunk"
                )
            else:
                assert not (request.entries["flags"] & FLAG_UPLOAD).any()
                led = self.leds[request.uid]
                found = [led.payloads[key] for key in keys_of(request.entries).tolist()]
                done = PayloadsRead(request.token, request.uid, request.entries, list(found))
            self.dispatcher.payloads_read(done, at(ms))
            self.sent += self.dispatcher.take_sends()
            self.reads += self.dispatcher.take_reads()

    def ack(self, push: Push, ms: float) -> None:
        """Ack every row of a push and commit."""
        for uid in dict.fromkeys(push.uid.tolist()):
            rows = push.uid == uid
            keys = ((push.sequence[rows] << np.uint64(16)) | push.row[rows]).tolist()
            self.leds[uid].change(RecordKind.ACK, keys, at(ms), token=push.token[rows].tolist())
        self.commit(ms)


def keys_in(push: Push) -> list[int]:
    """The keys of a push, in its order."""
    return ((push.sequence << np.uint64(16)) | push.row).tolist()


def kinds(stage: Stage, uid: int = 1) -> list[RecordKind]:
    """The kinds of the records in the log of a partition, without those of the insertions."""
    return [record.kind for record in stage.leds[uid].log if record.kind != RecordKind.INSERT]


def pushed(credit: int = 10, count: int = 1, lease_ms: int = 60_000) -> tuple[Stage, list[int]]:
    """A consumer with `count` pushed messages, due at 10 ms, and their keys."""
    stage = Stage()
    keys = stage.insert([10] * count)
    stage.attach(0, credit=credit, lease_ms=lease_ms)
    stage.run(0)
    stage.run(10)
    return stage, keys

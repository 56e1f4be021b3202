"""Brokers for the runtime's tests: real ROUTER sockets, real frames, no replication.

They do what a mesh of brokers would answer, from dictionaries, and can be told to be silent, to refuse, to stop.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import zmq

from dueq_codecs.frames import decode, encode
from dueq_codecs.messages import (
    BrokerInfo,
    BrokerMessage,
    ChangeReply,
    ChangeRequest,
    Code,
    ConsumerAction,
    ConsumerFrame,
    ConsumerReply,
    CreateTopicRequest,
    DeleteTopicRequest,
    Hello,
    HelloReply,
    InspectRequest,
    MetadataReply,
    MetadataRequest,
    PartitionInfo,
    Push,
    Reply,
    TopicInfo,
)
from dueq_codecs.pushes import push_rows
from dueq_codecs.records import Outcome, RecordKind

Answer = tuple[BrokerMessage, list[bytes | memoryview]]


class FakeBroker:
    """One broker in a thread of its own.

    Attributes:
        topics: by name; partition uids are given out from 1.
        leader: broker id that leads everything; by default itself.
        peers: other brokers, for the metadata.
        changes: every ChangeRequest that came in, in order.
        frames: every ConsumerFrame.
        rows: payload, due and kind by (uid, sequence, row): what was inserted and not cancelled or acked.
        refuse: called with each change; a reply (or "silent") instead of None is what the client gets.
    """

    def __init__(self, broker_id: str = "a", endpoint: str = "tcp://127.0.0.1:*") -> None:
        self.broker_id = broker_id
        self.leader = broker_id
        self.peers: list[FakeBroker] = []
        self.topics: dict[str, TopicInfo] = {}
        self.changes: list[ChangeRequest] = []
        self.frames: list[ConsumerFrame] = []
        self.rows: dict[tuple[int, int, int], tuple[bytes, int]] = {}
        self.refuse: Callable[[ChangeRequest], ChangeReply | str | None] = lambda request: None
        self._answers: dict[tuple[bytes, int, int], ChangeReply] = {}
        self._sequence = 0
        self._pushes: dict[bytes, int] = {}
        self._orders: list[Callable[[], None]] = []
        self._consumers: dict[bytes, tuple[bytes, ConsumerFrame]] = {}
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(endpoint)
        self.endpoint: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.changed = threading.Condition()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name=f"fake-broker-{broker_id}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Be gone, as if killed."""
        self._stop = True
        self._thread.join()

    def do(self, order: Callable[[], None]) -> None:
        """Run something in the broker's thread."""
        self._orders.append(order)

    def wait_for(self, condition: Callable[[], bool], timeout: float = 60.0) -> None:
        """Wait until something has come in."""
        with self.changed:
            assert self.changed.wait_for(condition, timeout)

    def add_topic(self, name: str, partitions: int = 1, **settings: Any) -> None:
        """Have a topic."""
        first = sum(len(info.partitions) for info in self.topics.values()) + 1
        parts = tuple(PartitionInfo(first + i, self.leader, 1, True, ("a",)) for i in range(partitions))
        info = TopicInfo(name, "timeline", 1, 1, settings.get("payload_bytes_max", 1 << 20), 0, parts)
        self.topics[name] = info

    def push(self, payloads: Sequence[bytes], *, left_ms: int = 30_000, token: int = 7) -> None:
        """Push payloads to every consumer; to the first one that comes, if there is none yet.

        A consumer is open as soon as it has said that it attaches: that may still be on its way.
        """
        self.wait_for(lambda: bool(self._consumers))
        self.do(lambda: self._push(payloads, left_ms, token))

    # -------------------------------------------------------------- the thread

    def _run(self) -> None:
        while not self._stop:
            while self._orders:
                self._orders.pop(0)()
            if not self._socket.poll(5):
                continue
            identity, *frames = self._socket.recv_multipart()
            message, bodies = decode(frames)
            for answer, answer_bodies in self._answer(identity, message, bodies):
                self._socket.send_multipart([identity, *encode(answer, answer_bodies)])
            with self.changed:
                self.changed.notify_all()
        self._socket.close(0)
        self._context.term()

    def _answer(self, identity: bytes, message: Any, bodies: list[bytes | memoryview]) -> list[Answer]:
        if isinstance(message, ChangeRequest):
            self.changes.append(message)
            reply = self.refuse(message) or self._change(message, bodies)
            return [] if isinstance(reply, str) else [(reply, [])]
        if isinstance(message, Hello):
            return [(self._hello(message), [])]
        if isinstance(message, ConsumerFrame):
            return self._consumer(identity, message)
        if isinstance(message, MetadataRequest):
            return [(self._metadata(message), [])]
        return [(self._plain(message), [])]

    def _hello(self, hello: Hello) -> HelloReply:
        now_us = time.time_ns() // 1000
        return HelloReply(
            Code.OK, broker_id=self.broker_id, cluster_id="k", echo_wall_us=hello.sent_wall_us,
            received_wall_us=now_us, sent_wall_us=now_us,
        )  # fmt: skip

    def _metadata(self, request: MetadataRequest) -> MetadataReply:
        brokers = tuple(BrokerInfo(b.broker_id, b.endpoint) for b in (self, *self.peers))
        if request.topic and request.topic not in self.topics:
            return MetadataReply(request.request_id, Code.TOPIC_NOT_FOUND, "no such topic", brokers)
        infos = [info for name, info in self.topics.items() if request.topic in ("", name)]
        for info in infos:
            epoch = 1 if self.leader == self.broker_id else 2
            info.partitions = tuple(
                PartitionInfo(p.uid, self.leader, epoch, True, p.replicas) for p in info.partitions
            )
        return MetadataReply(request.request_id, Code.OK, "", brokers, tuple(infos))

    def _plain(self, message: Any) -> Reply:
        if isinstance(message, CreateTopicRequest):
            if message.topic in self.topics and not message.exist_ok:
                return Reply(message.request_id, Code.TOPIC_EXISTS, "exists")
            if message.topic not in self.topics:
                self.add_topic(message.topic, message.partitions)
        elif isinstance(message, DeleteTopicRequest):
            if self.topics.pop(message.topic, None) is None:
                return Reply(message.request_id, Code.TOPIC_NOT_FOUND, "no such topic")
        elif isinstance(message, InspectRequest):
            if message.broker not in ("", self.broker_id):
                return Reply(message.request_id, Code.NOT_LEADER, "out of reach")
            return Reply(message.request_id, Code.OK, document=json.dumps(self._document(message)))
        return Reply(message.request_id, Code.OK)

    def _document(self, request: InspectRequest) -> dict[str, Any]:
        if request.what == "status":
            return {"broker": {"id": self.broker_id}, "partitions": [{"uid": 1}], "consumers": []}
        uids = [p.uid for p in self.topics[request.topic].partitions]
        if request.what == "forecast":
            return {"partitions": [{"uid": uid, "counts": [[1_000, 2], [3_000, uid]]} for uid in uids]}
        return {
            "partitions": [
                {"uid": uid, "index": i, "leader": self.broker_id, "epoch": 1, "sequence": 5,
                 "isr": [self.broker_id], "scheduled": len(self.rows), "ready": 1, "leased": 2}
                for i, uid in enumerate(uids)
            ]
        }  # fmt: skip

    # -------------------------------------------------------------- changes

    def _change(self, request: ChangeRequest, bodies: list[bytes | memoryview]) -> ChangeReply:
        key = (request.client_id, request.uid, request.sequence)
        reply = self._answers.get(key)
        if reply is None:
            reply = self._answers[key] = self._apply(request, bodies)
        reply.request_id = request.request_id
        return reply

    def _apply(self, request: ChangeRequest, bodies: list[bytes | memoryview]) -> ChangeReply:
        self._sequence += 1
        outcomes = []
        if request.kind is RecordKind.INSERT:
            start, body = 0, bytes(bodies[0]) if bodies else b""
            for row, (due, size) in enumerate(zip(request.due.tolist(), request.size.tolist(), strict=True)):
                self.rows[request.uid, self._sequence, row] = (body[start : start + size], due)
                start += size
        else:
            for sequence, row in zip(
                request.target_sequence.tolist(), request.target_row.tolist(), strict=True
            ):
                outcomes.append(self._alter(request.kind, (request.uid, sequence, row)))
        return ChangeReply(
            request.request_id, Code.OK, uid=request.uid, epoch=1, sequence=self._sequence,
            stamp=time.time_ns() // 1_000_000, outcomes=np.array(outcomes, np.uint8),
        )  # fmt: skip

    def _alter(self, kind: RecordKind, key: tuple[int, int, int]) -> Outcome:
        if key not in self.rows:
            return Outcome.STALE if kind in (RecordKind.ACK, RecordKind.NACK) else Outcome.NOT_FOUND
        if kind in (RecordKind.ACK, RecordKind.CANCEL):
            del self.rows[key]
        return Outcome.DONE

    # -------------------------------------------------------------- consumers

    def _consumer(self, identity: bytes, frame: ConsumerFrame) -> list[Answer]:
        self.frames.append(frame)
        if frame.action is ConsumerAction.GOODBYE:
            self._consumers.pop(frame.consumer_id, None)
        else:
            self._consumers[frame.consumer_id] = (identity, frame)
        if frame.action is ConsumerAction.ATTACH:
            self._pushes[frame.consumer_id] = 0
        reply = ConsumerReply(
            frame.topic, frame.consumer_id, frame.attach, frame.number,
            push_sent=self._pushes.get(frame.consumer_id, 0), leader=self.broker_id,
        )  # fmt: skip
        return [(reply, [])]

    def _push(self, payloads: Sequence[bytes], left_ms: int, token: int) -> None:
        for consumer_id, (identity, frame) in self._consumers.items():
            self._sequence += 1
            self._pushes[consumer_id] += 1
            rows, uid = len(payloads), self.topics[frame.topic].partitions[0].uid
            for row, payload in enumerate(payloads):
                self.rows[uid, self._sequence, row] = (payload, 1_000)
            push = Push(
                frame.topic, consumer_id, frame.attach, self._pushes[consumer_id], 1, time.time_ns() // 1000,
                self.broker_id, push_rows(
                    rows, uid=uid, first=1_000, sequence=self._sequence, row=range(rows), due=1_000, token=token,
                    attempt=1, lease_left_ms=left_ms, size=[len(p) for p in payloads],
                    crc=[crc32(p) for p in payloads],
                ),
            )  # fmt: skip
            self._socket.send_multipart([identity, *encode(push, [b"".join(payloads)])])

"""A client that was written from docs/reference/protocol.md: it uses nothing of dueq.

One connection, one thread, one thing at a time; the broker that it knows passes on what is for others.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any
from zlib import crc32

import zmq

from tests.integration.plain_wire import Message, decode, digest, encode, id_text

INSERT, MOVE, CANCEL, ACK, NACK, EXTEND, RELEASE, JOB = 2, 4, 5, 6, 7, 8, 9, 11
OK, UNKNOWN_UPLOAD = 0, 14
FINAL = {1, 2, 4, 5, 6, 15, 16, 17, 18, 19}
"""Codes of requests that will not succeed."""
CHUNK = 256 * 1024


class PlainClient:
    """One connection to one broker."""

    def __init__(self, endpoint: str) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in ((zmq.LINGER, 0), (zmq.IMMEDIATE, 1), (zmq.RECONNECT_IVL, -1), (zmq.RCVHWM, 0)):
            self._socket.setsockopt(option, value)
        self._socket.connect(endpoint)
        self.client_id = os.urandom(16)
        self._requests, self._sequences = itertools.count(1), Counter[int]()
        self._cluster, self._hello_at, self.mesh_minus_mono_us = "", 0.0, 0
        self._answers: dict[int, Message] = {}
        self.for_consumers: deque[tuple[Message, bytes]] = deque()
        self._until(lambda: self._cluster, 30)

    def close(self) -> None:
        """End the connection."""
        self._socket.close(0)
        self._context.term()

    # -------------------------------------------------------------- frames

    def send(self, message: str, /, body: bytes | None = None, **values: Any) -> None:
        """Send a message, with its body if it has one."""
        self.send_frames([encode(message, values), *([] if body is None else [body])])

    def send_frames(self, frames: list[bytes]) -> None:
        """Send what may not even be a message."""
        self._socket.send_multipart(frames)

    def answer(self, request_id: int, seconds: float = 30.0) -> Message:
        """Wait for the answer to a request; empty if none has come."""
        return dict(self._until(lambda: self._answers.pop(request_id, None), seconds) or {})

    def turn(self, seconds: float = 0.05) -> None:
        """Say hello if it is time, and take in what comes within some seconds."""
        if time.monotonic() - self._hello_at > 2:
            self._hello_at = time.monotonic()
            self.send(
                "Hello", role=0, name=self.client_id.hex(), cluster_id=self._cluster, attach=1, protocol_min=1,
                protocol_max=1, sent_wall_us=time.time_ns() // 1000, agent="plain",
            )  # fmt: skip
        if not self._socket.poll(int(seconds * 1000)):
            return
        header, *bodies = self._socket.recv_multipart()
        message = decode(header)
        if message["message"] == "HelloReply":
            self._greeted(message)
        elif message["message"] in ("ConsumerReply", "Push", "PushChunk"):
            self.for_consumers.append((message, bodies[0] if bodies else b""))
        else:
            self._answers[message["request_id"]] = message | {"body": bodies[0] if bodies else b""}

    def _greeted(self, reply: Message) -> None:
        assert reply["code"] == OK, reply["text"]
        self._cluster = reply["cluster_id"]
        if reply["sent_wall_us"]:
            middle = (self._hello_at + time.monotonic()) / 2 * 1_000_000
            mesh_us = (reply["received_wall_us"] + reply["sent_wall_us"]) / 2 + reply["mesh_offset_us"]
            self.mesh_minus_mono_us = int(mesh_us - middle)

    def _until(self, holds: Callable[[], Any], seconds: float) -> Any:
        end = time.monotonic() + seconds
        while not (found := holds()) and time.monotonic() < end:
            self.turn()
        return found

    def ask(self, message: str, /, body: bytes | None = None, silence: float = 1.0, **values: Any) -> Message:
        """Send a request, again and again, until it succeeds or cannot succeed any more."""
        request_id = next(self._requests)
        for attempt in range(30):
            self.send(message, body, request_id=request_id, **values)
            answer = self.answer(request_id, silence * min(2**attempt, 4))
            if answer and (answer["code"] in FINAL or answer["code"] in (OK, UNKNOWN_UPLOAD)):
                return answer
            self._until(lambda: False, 0.05 + answer.get("retry_after_ms", 0) / 1000)
        raise TimeoutError(f"{message} was not answered")

    # -------------------------------------------------------------- topics and changes

    def create_topic(self, topic: str, partitions: int, replicas: int) -> list[int]:
        """Make a topic; returns the uids of its partitions once they serve."""
        answer = self.ask(
            "CreateTopicRequest", silence=4.0, creation_id=os.urandom(16), topic=topic, kind="timeline",
            partitions=partitions, replicas=replicas,
        )  # fmt: skip
        assert answer["code"] == OK, answer["text"]
        while not all((found := self.metadata(topic))["partition_serving"]):
            self.turn()
        return list(found["partition_uid"])

    def metadata(self, topic: str) -> Message:
        """Where a topic's partitions are."""
        return self.ask("MetadataRequest", topic=topic)

    def mesh_ms(self) -> int:
        """Mesh time now."""
        return (time.monotonic_ns() // 1000 + self.mesh_minus_mono_us) // 1000

    def change(
        self, operation: int, topic: str, uid: int, body: bytes | None = None, **columns: Any
    ) -> Message:
        """Do something to a partition, once; `sequence` repeats an earlier request."""
        if "sequence" not in columns:
            self._sequences[uid] += 1
            columns["sequence"] = self._sequences[uid]
        request = {"topic": topic, "uid": uid, "client_id": self.client_id, **columns}
        rows = len(columns.get("due") or columns.get("first") or [JOB])
        request["digest"] = digest(request | {"operation": operation}, rows)
        answer = self.ask("ChangeRequest", body, kind=operation, **request)
        return answer | {"request_sequence": columns["sequence"]}

    def schedule(self, topic: str, uid: int, payloads: list[bytes], due: list[int], **more: Any) -> list[str]:
        """Schedule messages; returns their ids."""
        inline = b"".join(payload for payload in payloads if len(payload) <= CHUNK)
        size, crc = [len(payload) for payload in payloads], [crc32(payload) for payload in payloads]
        while True:
            if any(length > CHUNK for length in size):
                more["upload"] = [self._upload(topic, uid, p) if len(p) > CHUNK else 0 for p in payloads]
            answer = self.change(INSERT, topic, uid, inline, due=due, size=size, crc=crc, **more)
            if answer["code"] == OK:
                break
            assert answer["code"] == UNKNOWN_UPLOAD, answer["text"]
            more["sequence"] = answer["request_sequence"]
        self.inserted = answer
        return [
            id_text(
                max(instant, answer["stamp"], more.get("job_until", 0)),
                answer["uid"],
                answer["sequence"],
                answer["row"] + row,
            )
            for row, instant in enumerate(due)
        ]

    def _upload(self, topic: str, uid: int, payload: bytes) -> int:
        upload, chunks = 0, [payload[at : at + CHUNK] for at in range(0, len(payload), CHUNK)]
        for number, chunk in enumerate(chunks):
            answer = self.ask(
                "ChunkRequest", chunk, silence=2.0, topic=topic, uid=uid, client_id=self.client_id, upload=upload,
                chunk=number, chunks=len(chunks), size=len(payload), crc=crc32(chunk),
            )  # fmt: skip
            assert answer["code"] == OK, answer["text"]
            upload = answer["upload"]
        return upload

"""Simulated producers and consumers: they follow leaders, repeat what was not answered, and write history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from zlib import crc32

import numpy as np

from dueq.limits import CONSUMER_BEAT_MS, CONSUMER_CREDIT_BYTES
from dueq_chaos.sim.environment.world import World
from dueq_chaos.sim.judging.history import Delivery, History, MessageKey
from dueq_codecs.digest import request_digest
from dueq_codecs.messages import (
    BrokerMessage,
    ChangeReply,
    ChangeRequest,
    ClientMessage,
    Code,
    ConsumerAction,
    ConsumerFrame,
    ConsumerReply,
    Push,
)
from dueq_codecs.records import Outcome, RecordKind

_RETRY_US = 700_000
_RETRIABLE = frozenset(
    {Code.NOT_LEADER, Code.BUSY, Code.NOT_ENOUGH_REPLICAS, Code.OUTCOME_UNKNOWN, Code.DISK_FULL}
)
Bodies = list[bytes | memoryview]


class Brokers(Protocol):
    """The members of the mesh that its clients need."""

    names: list[str]

    def leader_of(self, uid: int) -> str | None:
        """The leader of a partition."""
        ...

    def client_send(self, client: str, broker: str, message: ClientMessage, bodies: Bodies) -> None:
        """Send a frame to a broker."""
        ...


class _Call:
    __slots__ = ("bodies", "done", "request")

    def __init__(self, request: ChangeRequest, bodies: Bodies, done: Callable[[ChangeReply], None]) -> None:
        self.request, self.bodies, self.done = request, bodies, done


class Asker:
    """Sends changing requests until they are answered for good: always the same request."""

    def __init__(self, name: str, world: World, mesh: Brokers) -> None:
        self.name, self.world, self.mesh = name, world, mesh
        self.client_id = crc32(name.encode()).to_bytes(16, "big")
        self._sequences: dict[int, int] = {}
        self.calls: dict[int, _Call] = {}
        self._request_ids = 0

    def ask(self, request: ChangeRequest, bodies: Bodies, done: Callable[[ChangeReply], None]) -> None:
        """Send, and repeat until there is a final answer."""
        self._request_ids += 1
        request.request_id = self._request_ids
        request.client_id = self.client_id
        request.sequence = self._sequences[request.uid] = self._sequences.get(request.uid, 0) + 1
        request.digest = request_digest(request)
        self.calls[request.request_id] = _Call(request, bodies, done)
        self._send(request.request_id)

    def _send(self, request_id: int) -> None:
        call = self.calls.get(request_id)
        if call is None:
            return
        target = self.mesh.leader_of(call.request.uid)
        if target is None or self.world.random.random() < 0.1:
            target = self.world.random.choice(self.mesh.names)
        self.mesh.client_send(self.name, target, call.request, call.bodies)
        self.world.after(_RETRY_US, lambda: self._send(request_id))

    def answered(self, reply: ChangeReply) -> None:
        """An answer has come; retriable ones wait for the next attempt."""
        if reply.code in _RETRIABLE:
            return
        call = self.calls.pop(reply.request_id, None)
        if call is not None:
            call.done(reply)


class SimProducer(Asker):
    """Schedules, moves and cancels."""

    def __init__(self, name: str, world: World, mesh: Brokers, history: History) -> None:
        super().__init__(name, world, mesh)
        self.history = history

    def received(self, message: BrokerMessage, bodies: Bodies) -> None:
        """A frame from a broker."""
        if isinstance(message, ChangeReply):
            self.answered(message)

    def schedule(self, topic: str, uid: int, payloads: list[bytes], dues_ms: list[int]) -> None:
        """Insert a batch; noted once it is acknowledged."""
        request = ChangeRequest(0, RecordKind.INSERT, topic, uid, b"", 0, 0)
        request.due = np.array(dues_ms, np.uint64)
        request.size = np.array([len(payload) for payload in payloads], np.uint32)
        request.crc = np.array([crc32(payload) for payload in payloads], np.uint32)
        for payload in payloads:
            self.history.unacknowledged[payload] = None

        def done(reply: ChangeReply) -> None:
            assert reply.code == Code.OK, reply
            for row, (payload, due) in enumerate(zip(payloads, dues_ms, strict=True)):
                self.history.unacknowledged.pop(payload, None)
                key = (uid, reply.sequence, reply.row + row)
                self.history.inserted(key, payload, due, max(due, reply.stamp))

        self.ask(request, [b"".join(payloads)], done)

    def _named(self, kind: RecordKind, topic: str, keys: list[MessageKey]) -> ChangeRequest:
        uid = keys[0][0]
        request = ChangeRequest(0, kind, topic, uid, b"", 0, 0)
        request.target_sequence = np.array([key[1] for key in keys], np.uint64)
        request.target_row = np.array([key[2] for key in keys], np.uint16)
        request.first = np.array([self.history.messages[key].first for key in keys], np.uint64)
        return request

    def cancel(self, topic: str, keys: list[MessageKey]) -> None:
        """Cancel messages of one partition."""
        request = self._named(RecordKind.CANCEL, topic, keys)
        for key in keys:
            self.history.messages[key].cancel_asked = True

        def done(reply: ChangeReply) -> None:
            for key, outcome in zip(keys, reply.outcomes.tolist(), strict=True):
                message = self.history.messages[key]
                if outcome == Outcome.DONE:
                    message.cancelled_at_us = self.world.wall_us
                else:
                    message.cancel_asked = False

        self.ask(request, [], done)

    def move(self, topic: str, keys: list[MessageKey], dues_ms: list[int]) -> None:
        """Move messages of one partition."""
        request = self._named(RecordKind.MOVE, topic, keys)
        request.due = np.array(dues_ms, np.uint64)
        for key, due in zip(keys, dues_ms, strict=True):
            self.history.messages[key].maybe_dues.append(due)

        def done(reply: ChangeReply) -> None:
            for key, outcome, due in zip(keys, reply.outcomes.tolist(), dues_ms, strict=True):
                message = self.history.messages[key]
                message.maybe_dues.remove(due)
                if outcome == Outcome.DONE:
                    self.history.moved(key, due, self.world.wall_us)

        self.ask(request, [], done)


class SimConsumer(Asker):
    """Attaches everywhere, acknowledges its messages after a while, and stops when told to.

    Attributes:
        ack_after_us: how long it works on a message; None: it never acknowledges.
    """

    def __init__(
        self, name: str, world: World, mesh: Brokers, history: History, topic: str, *, credit: int = 64,
        lease_ms: int = 5_000,
    ) -> None:  # fmt: skip
        super().__init__(name, world, mesh)
        self.history, self.topic, self.credit, self.lease_ms = history, topic, credit, lease_ms
        self.ack_after_us: int | None = 2_000
        self.alive = True
        self._attach = 0
        self._number = 0
        self._attached: dict[str, tuple[int, int]] = {}
        self._seen_push: dict[str, int] = {}
        self._held: dict[tuple[int, int, int, int], None] = {}
        self._seen: dict[tuple[int, int, int, int], None] = {}
        self._beat()

    def _beat(self) -> None:
        if not self.alive:
            return
        for broker in self.mesh.names:
            self._say(broker)
        self.world.after(CONSUMER_BEAT_MS * 250, self._beat)

    def _say(self, broker: str) -> None:
        self._number += 1
        known = self._attached.get(broker)
        if known is None or self.world.now_us - known[1] > 3_000_000:
            self._attach += 1
            self._attached[broker] = (self._attach, self.world.now_us)
            self._seen_push[broker] = 0
            action = ConsumerAction.ATTACH
        else:
            action = ConsumerAction.BEAT
        frame = ConsumerFrame(
            action, self.topic, self.client_id, self._attached[broker][0], self._number, self.credit,
            CONSUMER_CREDIT_BYTES, self.lease_ms, self._seen_push[broker], leader=broker,
        )  # fmt: skip
        if action is ConsumerAction.ATTACH:
            held = list(self._held)
            frame.held_uid = np.array([key[0] for key in held], np.uint32)
            frame.held_sequence = np.array([key[1] for key in held], np.uint64)
            frame.held_row = np.array([key[2] for key in held], np.uint16)
            frame.held_token = np.array([key[3] for key in held], np.uint64)
        self.mesh.client_send(self.name, broker, frame, [])

    def received(self, message: BrokerMessage, bodies: Bodies) -> None:
        """A frame from a broker."""
        if not self.alive:
            return
        if isinstance(message, ChangeReply):
            self.answered(message)
        elif isinstance(message, ConsumerReply):
            known = self._attached.get(message.leader)
            if message.code == Code.UNKNOWN_SESSION:
                self._attached.pop(message.leader, None)
                self._say(message.leader)
            elif message.code == Code.OK and known is not None and known[0] == message.attach:
                self._attached[message.leader] = (known[0], self.world.now_us)
        elif isinstance(message, Push):
            self._pushed(message, bodies)

    def _pushed(self, push: Push, bodies: Bodies) -> None:
        known = self._attached.get(push.leader)
        if known is None or known[0] != push.attach:
            return
        if push.number == self._seen_push.get(push.leader, 0) + 1:
            self._seen_push[push.leader] = push.number
        body = memoryview(bodies[0]) if bodies else memoryview(b"")
        offset = 0
        rows = zip(
            push.uid.tolist(), push.sequence.tolist(), push.row.tolist(), push.token.tolist(), push.size.tolist(),
            push.attempt.tolist(), push.lease_left_ms.tolist(), strict=True,
        )  # fmt: skip
        for uid, sequence, row, token, size, attempt, left_ms in rows:
            payload = bytes(body[offset : offset + size])
            offset += size
            pair = (uid, sequence, row, token)
            if pair in self._seen:
                continue
            self._seen[pair] = self._held[pair] = None
            lease_us = push.released_at_us + left_ms * 1000
            delivery = Delivery(self.world.wall_us, self.name, token, attempt, payload, lease_us)
            self.history.delivered((uid, sequence, row), delivery)
            self._plan_ack(pair, push)

    def _plan_ack(self, pair: tuple[int, int, int, int], push: Push) -> None:
        if self.ack_after_us is None:
            return
        at = list(zip(push.uid.tolist(), push.sequence.tolist(), push.row.tolist(), strict=True)).index(
            pair[:3]
        )
        first = int(push.first[at])
        self.world.after(self.ack_after_us, lambda: self._ack(pair, first))

    def _ack(self, pair: tuple[int, int, int, int], first: int) -> None:
        if not self.alive:
            return
        uid, sequence, row, token = pair
        request = ChangeRequest(0, RecordKind.ACK, self.topic, uid, b"", 0, 0)
        request.first = np.array([first], np.uint64)
        request.target_sequence = np.array([sequence], np.uint64)
        request.target_row = np.array([row], np.uint16)
        request.token = np.array([token], np.uint64)

        def done(reply: ChangeReply) -> None:
            self._held.pop(pair, None)
            if reply.outcomes.tolist() == [Outcome.DONE]:
                self.history.acked((uid, sequence, row), self.world.wall_us)

        self.ask(request, [], done)

    def crash(self) -> None:
        """The process is gone; its leases will run out."""
        self.alive = False
        self.calls.clear()

"""A consumer that was written from docs/reference/protocol.md: sessions, credit, pushes, leases."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from zlib import crc32

from tests.integration.plain_client import CHUNK, OK, PlainClient
from tests.integration.plain_wire import STRUCTS, Message, id_text

PUSH_ROW = [name for name, _ in STRUCTS["PushRow"]]

ATTACH, BEAT, GOODBYE = 0, 1, 2
BEAT_S, REPEAT_S, REFRESH_S = 2.5, 1.0, 2.0

Name = tuple[int, int, int]
"""uid, sequence, row."""


@dataclass
class Delivery:
    """One leased message; `ends` is when its lease is over by our monotonic clock, at the earliest."""

    name: Name
    first: int
    token: int
    due: int
    attempt: int
    key: bytes
    payload: bytes
    late_ms: float
    ends: float

    @property
    def id(self) -> str:
        return id_text(self.first, *self.name)


@dataclass
class Session:
    """With one leader. `attach_sent` and `stated`: when a frame left, by attach and by number."""

    leads: set[tuple[int, int]] = field(default_factory=set)
    attach: int = 0
    attached: bool = False
    number: int = 0
    sent_at: float = 0.0
    answered: int = 0
    pushed: set[int] = field(default_factory=set)
    push_sent: int = 0
    attach_sent: dict[int, float] = field(default_factory=dict)
    stated: dict[int, float] = field(default_factory=dict)
    clock: tuple[int, float, float] = (0, 0.0, 0.0)
    """The leader's life, our clock less its clock at least, and when that was taken."""

    @property
    def push_seen(self) -> int:
        return next(number for number in count() if number + 1 not in self.pushed)


class PlainConsumer:
    """One consumer of one topic."""

    def __init__(self, client: PlainClient, topic: str, credit: int = 100, lease_ms: int = 30_000) -> None:
        self._client, self._topic, self._credit, self._lease_ms = client, topic, credit, lease_ms
        self.consumer_id = os.urandom(16)
        self.held: dict[Name, Delivery] = {}
        self._attaches = count(1)
        self._sessions: dict[str, Session] = {}
        self._tokens: dict[Name, int] = {}
        self._chunks: dict[tuple[Name, int], dict[int, bytes]] = {}
        self._refreshed = -REFRESH_S

    def take(self, wanted: int, seconds: float) -> list[Delivery]:
        """Return new messages: as many as wanted, or what comes within some seconds."""
        fresh: list[Delivery] = []
        end = time.monotonic() + seconds
        while len(fresh) < wanted and time.monotonic() < end:
            self._speak()
            self._client.turn(0.02)
            while self._client.for_consumers:
                fresh += self._heard(*self._client.for_consumers.popleft())
        return fresh

    def settle(
        self, operation: int, deliveries: Iterable[Delivery], amount_ms: int | None = None
    ) -> list[int]:
        """ACK, NACK, EXTEND or RELEASE; returns the outcomes, of one partition after the other."""
        outcomes: list[int] = []
        by_uid: dict[int, list[Delivery]] = {}
        for delivery in deliveries:
            by_uid.setdefault(delivery.name[0], []).append(delivery)
        for uid, some in by_uid.items():
            columns = {
                "first": [delivery.first for delivery in some],
                "target_sequence": [delivery.name[1] for delivery in some],
                "target_row": [delivery.name[2] for delivery in some],
                "token": [delivery.token for delivery in some],
            }
            if amount_ms is not None:
                columns["amount_ms"] = [amount_ms] * len(some)
            sent = time.monotonic()
            answer = self._client.change(operation, self._topic, uid, **columns)
            assert answer["code"] == OK, answer["text"]
            outcomes += answer["outcomes"]
            for delivery in some:
                if operation == 8:
                    delivery.ends = sent + (amount_ms or 0) / 1000
                else:
                    self.held.pop(delivery.name, None)
        return outcomes

    def close(self) -> None:
        """Say goodbye to every leader, until each has answered."""
        first = {leader: session.number + 1 for leader, session in self._sessions.items()}
        spoke = 0.0
        end = time.monotonic() + 30
        while self._sessions and time.monotonic() < end:
            if time.monotonic() - spoke > 0.3:
                spoke = time.monotonic()
                for leader, session in self._sessions.items():
                    self._frame(leader, session, GOODBYE, 0)
            self._client.turn(0.02)
            while self._client.for_consumers:
                reply, _ = self._client.for_consumers.popleft()
                if reply["message"] == "ConsumerReply" and reply["number"] >= first.get(reply["leader"], 0):
                    self._sessions.pop(reply["leader"], None)

    # -------------------------------------------------------------- what we say

    def _speak(self) -> None:
        now = time.monotonic()
        if now - self._refreshed > REFRESH_S:
            self._refreshed = now
            self._refresh()
        for leader, session in self._sessions.items():
            behind = session.push_sent > session.push_seen
            unanswered = session.answered < session.number or not session.attached
            if now - session.sent_at < (REPEAT_S if unanswered or behind else BEAT_S):
                continue
            if session.attached:
                self._frame(leader, session, BEAT, self._share)
            else:
                self._attach(leader, session)

    @property
    def _share(self) -> int:
        return max(self._credit // max(len(self._sessions), 1), 1)

    def _refresh(self) -> None:
        found, leads = self._client.metadata(self._topic), {}
        columns = zip(
            found["partition_uid"], found["partition_leader"], found["partition_epoch"], strict=True
        )
        for uid, leader, epoch in columns:
            leads.setdefault(leader, set()).add((uid, epoch))
        leads.pop("", None)
        self._sessions = {leader: self._sessions.get(leader, Session()) for leader in leads}
        for leader, session in self._sessions.items():
            gained = not leads[leader] <= session.leads
            session.leads = leads[leader]
            if gained:
                self._attach(leader, session)

    def _attach(self, leader: str, session: Session) -> None:
        session.attach, session.attached = next(self._attaches), False
        session.pushed, session.push_sent = set(), 0
        session.attach_sent[session.attach] = time.monotonic()
        led = {uid for uid, _ in session.leads}
        held = [delivery for delivery in self.held.values() if delivery.name[0] in led]
        columns = {
            "held_uid": [delivery.name[0] for delivery in held],
            "held_sequence": [delivery.name[1] for delivery in held],
            "held_row": [delivery.name[2] for delivery in held],
            "held_token": [delivery.token for delivery in held],
        }
        self._frame(leader, session, ATTACH, self._share, **columns)

    def _frame(self, leader: str, session: Session, action: int, credit: int, **columns: list[int]) -> None:
        session.number += 1
        session.sent_at = session.stated[session.number] = time.monotonic()
        self._client.send(
            "ConsumerFrame", action=action, topic=self._topic, consumer_id=self.consumer_id, attach=session.attach,
            number=session.number, credit=credit, credit_bytes=64 << 20, lease_ms=self._lease_ms,
            push_seen=session.push_seen, leader=leader, **columns,
        )  # fmt: skip

    # -------------------------------------------------------------- what we hear

    def _heard(self, message: Message, body: bytes) -> list[Delivery]:
        if bytes(message["consumer_id"]) != self.consumer_id:
            return []
        if message["message"] == "PushChunk":
            name = (message["uid"], message["sequence"], message["row"])
            self._chunks.setdefault((name, message["token"]), {})[message["chunk"]] = body
            return []
        session = self._sessions.get(message["leader"])
        if session is None:
            return []
        if message["message"] == "Push":
            return self._pushed(session, message, body)
        if message["attach"] == session.attach:
            self._replied(session, message)
        return []

    def _replied(self, session: Session, reply: Message) -> None:
        session.attached = reply["code"] == OK
        if reply["code"] != OK:
            self._refreshed = 0.0
            return
        session.answered = max(session.answered, reply["number"])
        session.push_sent = max(session.push_sent, reply["push_sent"])
        sent = session.stated.get(reply["number"])
        if sent is not None:
            offset = sent - reply["mono_us"] / 1_000_000
            life, known, _ = session.clock
            if life != reply["incarnation"] or offset > known:
                session.clock = reply["incarnation"], offset, sent

    def _left_at(self, session: Session, push: Message) -> float:
        """When a push left, at the earliest."""
        since = session.attach_sent[push["attach"]]
        life, offset, taken = session.clock
        if life != push["incarnation"]:
            return since
        at = push["mono_us"] / 1_000_000 + offset
        return max(since, at - abs(at - taken) * 500e-6)

    def _pushed(self, session: Session, push: Message, body: bytes) -> list[Delivery]:
        fresh, start, whole = [], 0, True
        left_at = self._left_at(session, push) if push["rows"] else 0.0
        for values in push["rows"]:
            row = dict(zip(PUSH_ROW, values, strict=True))
            name = (row["uid"], row["sequence"], row["row"])
            size, token = row["size"], row["token"]
            if size > CHUNK:
                chunks = self._chunks.get((name, token), {})
                payload = b"".join(chunks[number] for number in sorted(chunks))
            else:
                payload = body[start : start + size]
                start += size
            if token <= self._tokens.get(name, 0):
                continue
            if len(payload) != size:
                whole = False  # a chunk was lost: the push comes again
                continue
            assert crc32(payload) == row["crc"]
            self._tokens[name] = token
            key = b""
            if row["keyed"]:
                key, payload = payload[1 : 1 + payload[0]], payload[1 + payload[0] :]
            delivery = Delivery(
                name, row["first"], token, row["due"], row["attempt"], key, payload,
                push["released_at_us"] / 1000 - row["due"], left_at + row["lease_left_ms"] / 1000,
            )  # fmt: skip
            self.held[name] = delivery
            fresh.append(delivery)
        if whole and push["attach"] == session.attach:
            session.pushed.add(push["number"])
        return fresh

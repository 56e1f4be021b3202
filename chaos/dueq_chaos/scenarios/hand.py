"""A client by hand: every frame to a broker of the script's choice, exactly as often as the script says.

The SDK would follow leaders, repeat and drop by itself; a scenario must be able to do it wrongly or not at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import numpy as np

from dueq.limits import CONSUMER_CREDIT_BYTES
from dueq_chaos.sim.environment.world import World
from dueq_codecs.digest import request_digest
from dueq_codecs.messages import (
    BrokerMessage,
    BrowseReply,
    BrowseRequest,
    ChangeReply,
    ChangeRequest,
    ClientMessage,
    Code,
    ConsumerAction,
    ConsumerFrame,
    ConsumerReply,
    Push,
    Reply,
)
from dueq_codecs.meta import Meta
from dueq_codecs.records import JobAction, Outcome, RecordKind
from dueq_codecs.rules import shared_name

Bodies = list[bytes | memoryview]
_FINAL = (Code.OK, Code.INVALID_REQUEST, Code.SEQUENCE_REUSED, Code.JOB_ENDED)


class Place(Protocol):
    """The members of the stage that a client by hand needs (see `stage.Stage`)."""

    world: World
    topic: str

    @property
    def uid(self) -> int:
        """The topic's first partition."""
        ...

    def client_send(self, client: str, broker: str, message: ClientMessage, bodies: Bodies) -> None:
        """Send a frame to a broker."""
        ...


class Stored(NamedTuple):
    """A message whose insert was acknowledged."""

    uid: int
    sequence: int
    row: int
    first: int
    due: int
    payload: bytes

    @property
    def key(self) -> tuple[int, int, int]:
        """Partition, log sequence, row."""
        return self.uid, self.sequence, self.row


@dataclass(frozen=True, slots=True)
class Pushed:
    """A delivery as it arrived."""

    at_ms: float
    broker: str
    uid: int
    sequence: int
    row: int
    first: int
    due: int
    token: int
    attempt: int
    lease_left_ms: int
    payload: bytes

    @property
    def key(self) -> tuple[int, int, int]:
        """Partition, log sequence, row."""
        return self.uid, self.sequence, self.row


class Browsed(NamedTuple):
    """A message as browsing shows it."""

    wait_at: int
    sequence: int
    row: int
    due: int
    size: int
    attempt: int
    upload: int
    body: bytes
    rank: int


def rows_of(reply: BrowseReply, body: bytes) -> list[Browsed]:
    """Return the rows of a page."""
    found, start = [], 0
    ranks = reply.rank.tolist() or [0] * len(reply.wait_at)
    columns = zip(
        reply.wait_at.tolist(), reply.sequence.tolist(), reply.row.tolist(), reply.due.tolist(),
        reply.size.tolist(), reply.attempt.tolist(), reply.upload.tolist(), reply.body_size.tolist(), ranks,
        strict=True,
    )  # fmt: skip
    for wait_at, sequence, row, due, size, attempt, upload, length, rank in columns:
        shown = body[start : start + length]
        found.append(Browsed(wait_at, sequence, row, due, size, attempt, upload, shown, rank))
        start += length
    return found


class Request:
    """One changing request, with all of its answers."""

    def __init__(self, change: ChangeRequest, bodies: Bodies, payloads: list[bytes]) -> None:
        self.change, self.bodies, self._payloads = change, bodies, payloads
        self.replies: list[ChangeReply] = []

    @property
    def codes(self) -> list[Code]:
        """How it was answered, in order."""
        return [reply.code for reply in self.replies]

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes of its rows, by the last answer."""
        return [Outcome(outcome) for outcome in self.replies[-1].outcomes.tolist()]

    @property
    def final(self) -> bool:
        """Whether it was answered for good."""
        return bool(self.replies) and self.codes[-1] in _FINAL

    def stored(self) -> list[Stored]:
        """The messages of an acknowledged insert."""
        reply, dues, hidden = self.replies[-1], self.change.due.tolist(), self.change.job_until
        assert reply.code == Code.OK, reply
        return [
            Stored(reply.uid, reply.sequence, reply.row + row, max(due, reply.stamp, hidden), due, payload)
            for row, (due, payload) in enumerate(zip(dues, self._payloads, strict=True))
        ]


class Hand:
    """One client, with its own end of the network.

    Attributes:
        pushes: every delivery that arrived, repeats too.
        consumer_replies: by broker, the last answer to a consumer's frame.
        replies: by request id, the last answer to a request that the script has sent as it is.
        pages: by request id, the answer to a BrowseRequest, with its body.
    """

    def __init__(self, stage: Place, name: str) -> None:
        self.stage, self.name = stage, name
        self.client_id = crc32(name.encode()).to_bytes(16, "big")
        self.pushes: list[Pushed] = []
        self.consumer_replies: dict[str, ConsumerReply] = {}
        self.replies: dict[int, Reply] = {}
        self.pages: dict[int, tuple[BrowseReply, bytes]] = {}
        self._requests: dict[int, Request] = {}
        self._sequences: dict[int, int] = {}
        self._attaches = self._numbers = 0
        self.last_push: dict[str, int] = {}
        self.attach_of: dict[str, int] = {}
        self._terms: dict[str, tuple[int, int]] = {}
        self._staying = False
        self._browsed = 0

    def send(self, broker: str, message: ClientMessage, bodies: Bodies | None = None) -> None:
        """One frame, once."""
        self.stage.client_send(self.name, broker, message, bodies or [])

    def received(self, message: BrokerMessage, bodies: Bodies) -> None:
        """A frame from a broker."""
        if isinstance(message, ChangeReply):
            self._requests[message.request_id].replies.append(message)
        elif isinstance(message, Reply):
            self.replies[message.request_id] = message
        elif isinstance(message, BrowseReply):
            self.pages[message.request_id] = message, bytes(bodies[0]) if bodies else b""
        elif isinstance(message, ConsumerReply):
            self.consumer_replies[message.leader] = message
        elif isinstance(message, Push):
            self.last_push[message.leader] = message.number
            self._pushed(message, memoryview(bodies[0]) if bodies else memoryview(b""))

    def _pushed(self, push: Push, body: memoryview) -> None:
        offset = 0
        for at, size in enumerate(push.size.tolist()):
            self.pushes.append(
                Pushed(
                    self.stage.world.wall_us / 1000, push.leader, int(push.uid[at]), int(push.sequence[at]),
                    int(push.row[at]), int(push.first[at]), int(push.due[at]), int(push.token[at]),
                    int(push.attempt[at]), int(push.lease_left_ms[at]), bytes(body[offset : offset + size]),
                )
            )  # fmt: skip
            offset += size

    # -------------------------------------------------------------- changes

    def insert(
        self, broker: str, payloads: list[bytes], dues: list[int], *, uid: int = 0, sequence: int = 0,
        topic: str = "", keyed: Meta = Meta.NONE, job: bytes = b"", until: int = 0, ranks: list[int] | None = None,
        groups: tuple[str, ...] = (), window_ms: int = 0,
    ) -> Request:  # fmt: skip
        """Schedule rows, one attempt.

        Args:
            broker: the one that is asked.
            payloads, dues: the rows; instants in Unix ms.
            uid: the partition; the stage's first one by default.
            sequence: the request's number; the next one by default.
            topic: the stage's by default.
            keyed: what the payloads begin with.
            job, until: what they belong to, and the instant (Unix ms) by which that must be committed.
            ranks: of the rows; None: the request has none.
            groups: of the rows, each named once; empty: the request has none.
            window_ms: each row may be due up to so much later.
        """
        change = self._change(RecordKind.INSERT, uid, topic)
        change.keyed, change.job, change.job_until = keyed, job, until
        change.rank = np.array(ranks or [], np.uint16)
        change.groups, change.group = groups, np.arange(len(groups), dtype=np.uint16)
        change.due = np.array(dues, np.uint64)
        change.window = np.full(len(dues) if window_ms else 0, window_ms, np.uint32)
        change.size = np.array([len(payload) for payload in payloads], np.uint32)
        change.crc = np.array([crc32(payload) for payload in payloads], np.uint32)
        return self._ask(broker, change, [b"".join(payloads)], payloads, sequence)

    def cancel(self, broker: str, messages: list[Stored], *, topic: str = "", uid: int = 0) -> Request:
        """Cancel messages of one partition, one attempt."""
        return self._ask(broker, self._naming(RecordKind.CANCEL, messages, topic, uid), [], [], 0)

    def move(self, broker: str, messages: list[Stored], dues: list[int]) -> Request:
        """Move messages of one partition, one attempt."""
        change = self._naming(RecordKind.MOVE, messages, "", 0)
        change.due = np.array(dues, np.uint64)
        return self._ask(broker, change, [], [], 0)

    def rank(self, broker: str, messages: list[Stored], ranks: list[int]) -> Request:
        """Give messages of one partition other ranks, one attempt."""
        change = self._naming(RecordKind.CHANGE, messages, "", 0)
        change.rank = np.array(ranks, np.uint16)
        return self._ask(broker, change, [], [], 0)

    def trigger(self, broker: str, messages: list[Stored]) -> Request:
        """Have messages of one partition delivered now, one attempt."""
        return self._ask(broker, self._naming(RecordKind.TRIGGER, messages, "", 0), [], [], 0)

    def act(self, broker: str, action: JobAction, job: bytes, until: int, *, uid: int) -> Request:
        """Commit, abort or cancel a job in one partition, one attempt."""
        change = self._change(RecordKind.JOB, uid, "")
        change.job, change.job_until, change.job_action = job, until, action
        return self._ask(broker, change, [], [], 0)

    def recur(self, broker: str, name: str, **document: Any) -> Request:
        """Do to a recurrence of the first partition what the document says, one attempt."""
        change = self._change(RecordKind.RECURRENCE, 0, "")
        change.name, change.document = name, json.dumps(document)
        return self._ask(broker, change, [], [], 0)

    def work(self, broker: str, name: str, **document: Any) -> Request:
        """Begin or stop a pass in the first partition, as the document says, one attempt."""
        change = self._change(RecordKind.PASS, 0, "")
        change.name, change.document = name, json.dumps(document)
        return self._ask(broker, change, [], [], 0)

    def bring(self, broker: str, data: bytes) -> Request:
        """Bring a shared body to the first partition, one attempt."""
        change = self._change(RecordKind.BODY, 0, "")
        change.shared, change.shared_size = shared_name(data), len(data)
        change.size, change.crc = np.array([len(data)], np.uint32), np.array([crc32(data)], np.uint32)
        return self._ask(broker, change, [data], [], 0)

    def keep(self, broker: str, data: bytes, grace_ms: int) -> Request:
        """Give a shared body of the first partition a grace of this length, one attempt."""
        change = self._change(RecordKind.BODY, 0, "")
        change.shared, change.shared_size = shared_name(data), len(data)
        change.amount_ms = np.array([grace_ms], np.uint64)
        return self._ask(broker, change, [], [], 0)

    def settle(
        self,
        broker: str,
        kind: RecordKind,
        pushes: list[Pushed],
        *,
        amounts_ms: list[int] | None = None,
        patient: bool = False,
        document: str = "",
    ) -> Request:
        """Ack, nack, extend or release leases of one partition, one attempt."""
        change = self._naming(kind, pushes, "", 0)
        change.patient, change.document = patient, document
        change.token = np.array([pushed.token for pushed in pushes], np.uint64)
        if amounts_ms is not None:
            change.amount_ms = np.array(amounts_ms, np.uint64)
        return self._ask(broker, change, [], [], 0)

    def again(self, broker: str, request: Request) -> None:
        """The very same request once more."""
        self.send(broker, replace(request.change), request.bodies)

    def _change(self, kind: RecordKind, uid: int, topic: str) -> ChangeRequest:
        return ChangeRequest(0, kind, topic or self.stage.topic, uid or self.stage.uid, self.client_id, 0, 0)

    def _naming(
        self, kind: RecordKind, named: list[Stored] | list[Pushed], topic: str, uid: int
    ) -> ChangeRequest:
        change = self._change(kind, uid or named[0].uid, topic)
        change.first = np.array([one.first for one in named], np.uint64)
        change.target_sequence = np.array([one.sequence for one in named], np.uint64)
        change.target_row = np.array([one.row for one in named], np.uint16)
        return change

    def _ask(
        self, broker: str, change: ChangeRequest, bodies: Bodies, payloads: list[bytes], sequence: int
    ) -> Request:
        change.request_id = len(self._requests) + 1
        change.sequence = sequence or self._sequences.get(change.uid, 0) + 1
        self._sequences[change.uid] = max(change.sequence, self._sequences.get(change.uid, 0))
        change.digest = request_digest(change)
        request = self._requests[change.request_id] = Request(change, bodies, payloads)
        self.send(broker, change, bodies)
        return request

    # -------------------------------------------------------------- browsing

    def browse(self, broker: str, *, uid: int = 0, **fields: Any) -> int:
        """Ask for a page, one attempt; `fields` are those of a BrowseRequest. Returns the request's number."""
        self._browsed += 1
        self.send(broker, BrowseRequest(self._browsed, self.stage.topic, uid or self.stage.uid, **fields))
        return self._browsed

    # -------------------------------------------------------------- consuming

    def attach(
        self, broker: str, *, credit: int = 64, lease_ms: int = 5_000, held: list[Pushed] | None = None
    ) -> None:
        """Attach to one leader, saying what is held."""
        self._attaches += 1
        self.attach_of[broker], self.last_push[broker] = self._attaches, 0
        self._terms[broker] = credit, lease_ms
        frame = self._frame(ConsumerAction.ATTACH, broker)
        pairs = held or []
        frame.held_uid = np.array([pushed.uid for pushed in pairs], np.uint32)
        frame.held_sequence = np.array([pushed.sequence for pushed in pairs], np.uint64)
        frame.held_row = np.array([pushed.row for pushed in pairs], np.uint16)
        frame.held_token = np.array([pushed.token for pushed in pairs], np.uint64)
        self.send(broker, frame)

    def beat(self, broker: str) -> None:
        """A heartbeat to a leader to which this client is attached."""
        self.send(broker, self._frame(ConsumerAction.BEAT, broker))

    def stay(self) -> None:
        """From now on a heartbeat goes to every broker to which it is attached, twice a second.

        A leader that does not know it (it did not lead when this client attached) is attached to again.
        """
        if not self._staying:
            self._staying = True
            self._keep_up()

    def fall_silent(self) -> None:
        """No heartbeat by itself any more."""
        self._staying = False

    def _keep_up(self) -> None:
        if self._staying:
            for broker in list(self.attach_of):
                answer = self.consumer_replies.get(broker)
                if answer is None or answer.code == Code.OK:
                    self.beat(broker)
                else:
                    credit, lease_ms = self._terms[broker]
                    self.attach(broker, credit=credit, lease_ms=lease_ms, held=self.pushes)
            self.stage.world.after(500_000, self._keep_up)

    def goodbye(self, broker: str) -> None:
        """Detach in order."""
        self.send(broker, self._frame(ConsumerAction.GOODBYE, broker))
        del self.attach_of[broker]

    def _frame(self, action: ConsumerAction, broker: str) -> ConsumerFrame:
        self._numbers += 1
        credit, lease_ms = self._terms[broker]
        return ConsumerFrame(
            action, self.stage.topic, self.client_id, self.attach_of[broker], self._numbers, credit,
            CONSUMER_CREDIT_BYTES, lease_ms, self.last_push[broker], leader=broker,
        )  # fmt: skip

    # -------------------------------------------------------------- what was delivered

    def got(self, message: Stored) -> list[Pushed]:
        """Every delivery of a message, repeats under one token left out."""
        found = {pushed.token: pushed for pushed in self.pushes if pushed.key == message.key}
        return list(found.values())

"""Queues inserts, so that a turn stays short during any bulk load.

Acks, leases, heartbeats and replication take part in the turn that reads them. Inserts come in bulk. They
share a bounded part of each turn, oldest first, and wait in a bounded queue; beyond that they are refused
with BUSY. Inserts that are due much later are admitted no faster than `pacing` allows, and later requests
on the same connection stay behind them. All this holds for inserts that another broker relays, too.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from dueq import limits
from dueq.broker.pacing import Pace
from dueq.core.ports.events import ClientFrameReceived, Event, PeerFrameReceived
from dueq.instant import Now
from dueq_codecs.messages import ChangeReply, ChangeRequest, ChunkReply, ChunkRequest, Code, Relay
from dueq_codecs.records import RecordKind

_TURN_REQUESTS = 256
_TURN_ROWS = 2_048
_TURN_BYTES = 1 << 20
_REQUEST_BYTES = 512
"""Weight of a request beside its payloads, its rows and its texts."""
_ROW_BYTES = 64
"""Least weight of a row, also of one with few columns."""
_RETRY_AFTER_MS = 100
_PATIENT_MS: Final = 10_000
"""Rows that are due later than this from now can be delayed without harm."""
_PATIENCE_S: Final = 0.5
"""Longest wait here for the pace; clients ask again after a second."""
_NEVER_MS: Final = np.uint64((1 << 64) - 1)

Refusal = ChangeReply | ChunkReply
"""What to answer."""


class _Request(NamedTuple):
    """A client's request.

    Attributes:
        by: the broker that relays it ("" if none does), and the client's connection there.
    """

    message: object
    bodies: Sequence[bytes | memoryview]
    by: tuple[str, bytes]


class _Waiting(NamedTuple):
    number: int
    event: Event
    by: tuple[str, bytes]
    rows: int
    weight: int


class Inserts:
    """The inserts and chunks of clients that no turn has taken yet.

    Attributes:
        waiting_bytes: their weight, payloads included.
        pace: how fast rows that are due much later are let in.
        held_up: requests that came when the pace let nothing more in.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._prompt: deque[_Waiting] = deque()
        self._patient: deque[_Waiting] = deque()
        self._patient_rows = 0
        # By connection: how many of its requests are in the patient line.
        self._behind: Counter[tuple[str, bytes]] = Counter()
        self.waiting_bytes = 0
        self.pace = Pace()
        self.held_up = 0

    def put(self, event: Event, now: Now) -> Refusal | None:
        """Queue an insert or chunk; returns the refusal when there is no room for it, or no hope of its turn soon.

        Args:
            event: one for which `is_insert` holds.
            now: this instant.
        """
        request = _request_in(event)
        assert request is not None
        message, bodies, by = request
        rows = message.rows if isinstance(message, ChangeRequest) else 1
        columns = max(rows * _ROW_BYTES, _frame_bytes(message))
        weight = _REQUEST_BYTES + columns + _text_bytes(message) + sum(map(len, bodies))
        if self.waiting_bytes + weight > limits.INSERTS_WAITING_BYTES_MAX:
            return _busy(
                message,
                f"more than {limits.INSERTS_WAITING_BYTES_MAX >> 20} MiB of inserts wait at this broker",
            )
        waiting = _Waiting(next(self._numbers), event, by, rows, weight)
        if by in self._behind or _is_patient(message, now):
            if self.pace.wait_us(now.mono_us):
                self.held_up += 1
                if self._patient_rows > self.pace.rows_within(_PATIENCE_S):
                    return _busy(message, "inserts that are due much later wait, for deliveries come first")
            self._behind[by] += 1
            self._patient_rows += rows
            self._patient.append(waiting)
        else:
            self._prompt.append(waiting)
        self.waiting_bytes += weight
        return None

    def take(self, now: Now) -> Iterable[Event]:
        """Yield this turn's share: at least one, if there is any that need not wait."""
        requests = rows = weight = 0
        while requests < _TURN_REQUESTS and rows < _TURN_ROWS and weight < _TURN_BYTES:
            taken = self._next(now)
            if taken is None:
                return
            requests, rows, weight = requests + 1, rows + taken.rows, weight + taken.weight
            self.waiting_bytes -= taken.weight
            yield taken.event

    def _next(self, now: Now) -> _Waiting | None:
        """Take out the oldest, passing over the patient while they have to wait."""
        if self._patient and not self.pace.wait_us(now.mono_us):
            older = not self._prompt or self._patient[0].number < self._prompt[0].number
            if older:
                return self._take_patient(now)
        return self._prompt.popleft() if self._prompt else None

    def _take_patient(self, now: Now) -> _Waiting:
        taken = self._patient.popleft()
        self._behind[taken.by] -= 1
        if not self._behind[taken.by]:
            del self._behind[taken.by]
        self._patient_rows -= taken.rows
        self.pace.took(taken.rows, now.mono_us)
        return taken

    def wait_us(self, now: Now) -> int | None:
        """Return for how long nothing can be taken; 0: something can; None: nothing waits."""
        if self._prompt:
            return 0
        return self.pace.wait_us(now.mono_us) if self._patient else None


def _is_patient(message: object, now: Now) -> bool:
    """Whether nothing of it is due for a while."""
    if not isinstance(message, ChangeRequest):
        return False
    soonest_ms = message.due.min(initial=_NEVER_MS)
    return bool(soonest_ms > now.wall_us // 1000 + _PATIENT_MS)


def _frame_bytes(message: object) -> int:
    """Return the length of a request's frame: its columns are views of it, so all of it stays as long as it waits.

    That may be more than its columns: a sender may leave room between them.
    """
    frame = message.due.base if isinstance(message, ChangeRequest) else None
    return frame.nbytes if isinstance(frame, memoryview) else 0


def _text_bytes(message: object) -> int:
    """Return the length of the texts of a request: there are as many groups as rows, and others may fill a frame."""
    if isinstance(message, ChunkRequest):
        return len(message.topic)
    if not isinstance(message, ChangeRequest):
        return 0
    return len(message.topic) + len(message.name) + len(message.document) + sum(map(len, message.groups))


def is_insert(event: Event) -> bool:
    """Whether an event brings new messages (or a part of one) from a client."""
    request = _request_in(event)
    if request is None:
        return False
    message = request.message
    if isinstance(message, ChangeRequest):
        return message.kind == RecordKind.INSERT
    return isinstance(message, ChunkRequest)


def _request_in(event: Event) -> _Request | None:
    if isinstance(event, ClientFrameReceived):
        return _Request(event.message, event.bodies, ("", event.route.identity))
    if isinstance(event, PeerFrameReceived) and isinstance(event.message, Relay) and not event.message.back:
        relay = event.message
        return _Request(relay.inner, relay.bodies, (relay.sender, relay.identity))
    return None


def _busy(message: object, text: str) -> ChangeReply | ChunkReply:
    if isinstance(message, ChunkRequest):
        return ChunkReply(
            message.request_id, Code.BUSY, text, message.upload, message.chunk, retry_after_ms=_RETRY_AFTER_MS
        )
    assert isinstance(message, ChangeRequest)
    return ChangeReply(message.request_id, Code.BUSY, text, uid=message.uid, retry_after_ms=_RETRY_AFTER_MS)

"""Inserts wait their turn, so that a turn stays short whatever is being loaded.

Acks, leases, heartbeats and replication take part in the turn that reads them. Inserts, which come in heaps, share a
bounded part of each turn, oldest first, and have a bounded room to wait in; beyond it they are refused with BUSY.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from dueq.core.events import ClientFrameReceived, Event
from dueq_codecs.messages import ChangeReply, ChangeRequest, ChunkReply, ChunkRequest, Code
from dueq_codecs.records import RecordKind

_TURN_REQUESTS = 256
_TURN_ROWS = 2_048
_TURN_BYTES = 1 << 20
_WAITING_BYTES_MAX = 64 << 20
_REQUEST_BYTES = 512
"""What a request weighs beside its payloads."""
_RETRY_AFTER_MS = 100

Refusal = tuple[bytes, ChangeReply | ChunkReply]
"""The connection, and what to answer."""


class Inserts:
    """The inserts and chunks of clients that no turn has taken yet.

    Attributes:
        waiting_bytes: what they weigh, payloads included.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[ClientFrameReceived, int, int]] = deque()
        self.waiting_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, event: Event) -> Refusal | None:
        """Queue an insert or chunk; returns the refusal when there is no room for it.

        Args:
            event: one for which `is_insert` holds.
        """
        assert isinstance(event, ClientFrameReceived)
        message = event.message
        weight = _REQUEST_BYTES + sum(map(len, event.bodies))
        if self.waiting_bytes + weight > _WAITING_BYTES_MAX:
            return event.route.identity, _busy(message)
        rows = message.rows if isinstance(message, ChangeRequest) else 1
        self._waiting.append((event, rows, weight))
        self.waiting_bytes += weight
        return None

    def take(self) -> Iterable[Event]:
        """Yield this turn's share: at least one, if there is any."""
        requests = rows = weight = 0
        while self._waiting and requests < _TURN_REQUESTS and rows < _TURN_ROWS and weight < _TURN_BYTES:
            event, event_rows, event_weight = self._waiting.popleft()
            requests, rows, weight = requests + 1, rows + event_rows, weight + event_weight
            self.waiting_bytes -= event_weight
            yield event


def is_insert(event: Event) -> bool:
    """Whether an event brings new messages (or a part of one) from a client."""
    if not isinstance(event, ClientFrameReceived):
        return False
    message = event.message
    if isinstance(message, ChangeRequest):
        return message.kind == RecordKind.INSERT
    return isinstance(message, ChunkRequest)


def _busy(message: object) -> ChangeReply | ChunkReply:
    text = f"more than {_WAITING_BYTES_MAX >> 20} MiB of inserts wait at this broker"
    if isinstance(message, ChunkRequest):
        return ChunkReply(
            message.request_id, Code.BUSY, text, message.upload, message.chunk, retry_after_ms=_RETRY_AFTER_MS
        )
    assert isinstance(message, ChangeRequest)
    return ChangeReply(message.request_id, Code.BUSY, text, uid=message.uid, retry_after_ms=_RETRY_AFTER_MS)

"""The gate: every request of a client passes it before any handler sees it, whether it came directly or by a relay.

`Hello` is the exception: it asks for nothing and opens the session, and the shell decides whose session that is.
The gate of today admits everybody. Rights and quotas are answers that another gate gives; the places where it is asked
stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from dueq.core.partition.requests import Refusal
from dueq_codecs.messages import (
    BrowseRequest,
    ChangeRequest,
    ChunkRequest,
    ClientMessage,
    ConsumerFrame,
    CreateTopicRequest,
    DeleteTopicRequest,
    Hello,
    InspectRequest,
    LookRequest,
    MetadataRequest,
    UpdateTopicRequest,
)
from dueq_codecs.records import RecordKind


class Operation(StrEnum):
    """The kind of a client's request."""

    METADATA = "metadata"
    INSPECT = "inspect"
    PURGE = "purge"
    """Finish all messages in a state."""
    READ_ENDPOINTS = "read endpoints"
    """See endpoints with their secrets: what gateways do."""
    CREATE_TOPIC = "create topic"
    DELETE_TOPIC = "delete topic"
    UPDATE_TOPIC = "update topic"
    """Change its settings, and wait for them."""
    SCHEDULE = "schedule"
    """Insert messages, and upload long payloads for them."""
    CHANGE = "change"
    """Move or cancel messages, or change their ranks."""
    SET_GROUP = "set group"
    """Set the weight or the limits of a group, or pause it."""
    LOAD = "load"
    """Commit, abort or cancel a job."""
    RECUR = "recur"
    """Create, change, pause, resume, trigger or delete a recurrence."""
    DEAD_LETTERS = "dead letters"
    """Let dead messages wait again, or discard them."""
    CONSUME = "consume"
    """Attach, beat, say goodbye; acknowledge, give back or keep what was delivered."""
    BROWSE = "browse"
    """See messages, without the payloads."""
    READ_PAYLOADS = "read payloads"
    """See messages, with the payloads."""


class Passage(NamedTuple):
    """A request at the gate.

    Attributes:
        operation: what is asked for.
        topic: its name; empty: of all topics, or of the mesh.
        rows: messages that the request names or brings.
        payload_bytes: that it brings.
    """

    operation: Operation
    topic: str
    rows: int = 0
    payload_bytes: int = 0


class Gate:
    """Admits everybody."""

    def admit(self, principal: str, passage: Passage) -> Refusal | None:
        """Return None to let a request through, or why it is refused.

        Args:
            principal: the one of the session by which it came; empty: not authenticated.
            passage: what is asked for.
        """
        return None


_CHANGES = {
    RecordKind.INSERT: Operation.SCHEDULE,
    RecordKind.BODY: Operation.SCHEDULE,
    RecordKind.MOVE: Operation.CHANGE,
    RecordKind.CANCEL: Operation.CHANGE,
    RecordKind.CHANGE: Operation.CHANGE,
    RecordKind.TRIGGER: Operation.CHANGE,
    RecordKind.GROUP: Operation.SET_GROUP,
    RecordKind.JOB: Operation.LOAD,
    RecordKind.SETTINGS: Operation.UPDATE_TOPIC,
    RecordKind.PASS: Operation.PURGE,
    RecordKind.RECURRENCE: Operation.RECUR,
    RecordKind.DISCARD: Operation.DEAD_LETTERS,
    RecordKind.REDRIVE: Operation.DEAD_LETTERS,
}


def passage_of(message: ClientMessage, bodies: Sequence[bytes | memoryview]) -> Passage | None:
    """Return what a client's message asks for; None: it opens a session.

    Args:
        message: of a client.
        bodies: the payload bytes beside it.
    """
    match message:
        case ChangeRequest():
            operation = _CHANGES.get(message.kind, Operation.CONSUME)
            return Passage(operation, message.topic, message.rows, sum(map(len, bodies)))
        case ConsumerFrame():
            return Passage(Operation.CONSUME, message.topic)
        case ChunkRequest():
            return Passage(Operation.SCHEDULE, message.topic, 0, sum(map(len, bodies)))
        case BrowseRequest():
            reads = message.payloads or message.upload
            return Passage(Operation.READ_PAYLOADS if reads else Operation.BROWSE, message.topic)
        case LookRequest():
            reads = message.payload or message.upload
            return Passage(Operation.READ_PAYLOADS if reads else Operation.BROWSE, message.topic, 1)
        case MetadataRequest():
            return Passage(Operation.METADATA, message.topic)
        case InspectRequest() if message.what.startswith("endpoints"):
            return Passage(Operation.READ_ENDPOINTS, message.topic)
        case InspectRequest():
            return Passage(Operation.INSPECT, message.topic)
        case CreateTopicRequest():
            return Passage(Operation.CREATE_TOPIC, message.topic)
        case DeleteTopicRequest():
            return Passage(Operation.DELETE_TOPIC, message.topic)
        case UpdateTopicRequest():
            return Passage(Operation.UPDATE_TOPIC, message.topic)
        case Hello():
            return None

"""How a request ended."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """How a request ended. Each maps to one exception of the SDK."""

    OK = 0
    INVALID_REQUEST = 1
    PAYLOAD_TOO_LARGE = 2
    TOPIC_NOT_FOUND = 3
    TOPIC_EXISTS = 4
    SEQUENCE_REUSED = 5
    NOT_ALLOWED = 6
    BUSY = 7
    DISK_FULL = 8
    NOT_ENOUGH_REPLICAS = 9
    NOT_LEADER = 10
    OUTCOME_UNKNOWN = 11
    UNKNOWN_SESSION = 12
    COORDINATOR_UNAVAILABLE = 13
    UNKNOWN_UPLOAD = 14
    BAD_FRAME = 15
    WRONG_VERSION = 16
    WRONG_CLUSTER = 17
    BROKEN = 18
    JOB_ENDED = 19
    TOO_MANY_RECURRENCES = 20
    UNKNOWN_BODY = 21
    SUPERSEDED = 22

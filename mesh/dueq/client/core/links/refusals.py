"""The errors that callers get for the codes of answers."""

from __future__ import annotations

from typing import Final

from dueq import errors
from dueq_codecs.messages import Code

FINAL: Final = frozenset(
    {
        Code.INVALID_REQUEST,
        Code.PAYLOAD_TOO_LARGE,
        Code.TOPIC_EXISTS,
        Code.SEQUENCE_REUSED,
        Code.NOT_ALLOWED,
        Code.BAD_FRAME,
        Code.WRONG_VERSION,
        Code.WRONG_CLUSTER,
        Code.BROKEN,
        Code.JOB_ENDED,
        Code.TOO_MANY_RECURRENCES,
        Code.UNKNOWN_BODY,
        Code.SUPERSEDED,
    }
)
"""Asking again brings the same answer."""

_ERRORS: Final[dict[Code, type[errors.DueqError]]] = {
    Code.INVALID_REQUEST: errors.InvalidRequest,
    Code.PAYLOAD_TOO_LARGE: errors.PayloadTooLarge,
    Code.TOPIC_NOT_FOUND: errors.TopicNotFound,
    Code.TOPIC_EXISTS: errors.TopicExists,
    Code.SEQUENCE_REUSED: errors.SequenceReused,
    Code.NOT_ALLOWED: errors.NotAllowed,
    Code.DISK_FULL: errors.DiskFull,
    Code.NOT_ENOUGH_REPLICAS: errors.NotEnoughReplicas,
    Code.NOT_LEADER: errors.NotLeader,
    Code.OUTCOME_UNKNOWN: errors.OutcomeUnknown,
    Code.COORDINATOR_UNAVAILABLE: errors.Unavailable,
    Code.BAD_FRAME: errors.InvalidRequest,
    Code.WRONG_VERSION: errors.UnknownVersion,
    Code.WRONG_CLUSTER: errors.InvalidRequest,
    Code.BROKEN: errors.Broken,
    Code.JOB_ENDED: errors.JobEnded,
    Code.TOO_MANY_RECURRENCES: errors.TooManyRecurrences,
    Code.UNKNOWN_BODY: errors.UnknownBody,
    Code.SUPERSEDED: errors.Superseded,
}


def error_of(code: Code, text: str, retry_after_ms: int = 0) -> errors.DueqError:
    """Return the exception of an answer that is not OK."""
    text = text or f"the broker answered {code.name}"
    if code is Code.BUSY:
        return errors.Busy(text, retry_after=(retry_after_ms or 100) / 1000)
    return _ERRORS.get(code, errors.Broken)(text)

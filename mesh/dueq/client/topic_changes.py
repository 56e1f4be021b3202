"""Changing a topic while it is in use: settings, pause and resume.

The coordinator stores the change; then each partition's leader is asked whether it is in force. Both can be repeated
without harm: a change names the version that it makes, and waiting changes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from dueq import limits
from dueq.client import arguments, times
from dueq.client.backoff import Backoff, backoff_document
from dueq.client.calls import Call, Steps
from dueq.client.core import PartsCall
from dueq.client.core.ports import events
from dueq.client.times import Seconds
from dueq.errors import (
    InvalidRequest,
    NotYetApplied,
    OutcomeUnknown,
    PartialFailure,
    Unavailable,
    VersionDiffers,
)
from dueq_codecs.records import ATTEMPTS_MAX
from dueq_codecs.topic_settings import KEYS, RATE_MAX, REMEMBER_MS_MAX, fault_of_labels, fault_of_rate

Document = dict[str, Any]

VERSION_MAX: Final = (1 << 63) - 1
"""Highest version of settings that can be named."""


def settings(
    payload_bytes_max: int | None,
    horizon: Seconds | None,
    rate: float | None,
    burst: int | None,
    labels: Mapping[str, str] | None,
) -> Document:
    """Return the changes that a caller asks for, by the settings' names.

    Raises:
        InvalidRequest: a value is outside its limits.
    """
    changes: Document = {}
    if payload_bytes_max is not None:
        changes["payload_bytes_max"] = arguments.count(
            payload_bytes_max, "payload_bytes_max", 1, limits.PAYLOAD_BYTES_MAX
        )
    if horizon is not None:
        changes["horizon_ms"] = times.duration_ms(horizon, "horizon", 0, limits.DUE_MS_MAX)
    if rate is not None:
        rate = arguments.plain(rate)
        if (fault := fault_of_rate(rate)) is not None:
            raise InvalidRequest(fault)
        changes["rate"] = int(rate) if rate == int(rate) else rate
    if burst is not None:
        changes["burst"] = arguments.count(burst, "burst", 0, RATE_MAX)
    if labels is not None:
        fault = fault_of_labels(labels)
        if fault is not None:
            raise InvalidRequest(fault)
        changes["labels"] = dict(labels)
    return changes


def of_keys(keys: str | None, remember: Seconds | None) -> Document:
    """Return what is said of the topic's keys, by the settings' names.

    Raises:
        InvalidRequest: a value is outside its limits.
    """
    changes: Document = {}
    if keys is not None:
        changes["keys"] = arguments.one_of(keys, "keys", KEYS)
    if remember is not None:
        changes["remember_ms"] = times.duration_ms(remember, "remember", 0, REMEMBER_MS_MAX)
    return changes


def endings(
    max_attempts: int | None, backoff: Backoff | None, expired: str | None, dead_retention: Seconds | None
) -> Document:
    """Return the changes of how messages end, by the settings' names.

    Raises:
        InvalidRequest: a value is outside its limits.
    """
    changes: Document = {}
    if max_attempts is not None:
        changes["max_attempts"] = arguments.count(max_attempts, "max_attempts", 0, ATTEMPTS_MAX)
    if backoff is not None:
        changes["backoff"] = backoff_document(backoff)
    if expired is not None:
        if not isinstance(expired, str) or expired not in ("finish", "dead"):
            raise InvalidRequest(f"expired is finish or dead, not {expired!r:.80}")
        changes["expired"] = expired
    if dead_retention is not None:
        changes["dead_retention_ms"] = times.duration_ms(
            dead_retention, "dead_retention", 1000, limits.DUE_MS_MAX
        )
    return changes


def partition_count(partitions: int | None, changes: Document) -> int:
    """Return how many partitions a topic is to have; 0: as many as it has.

    Raises:
        InvalidRequest: a topic never has so many, or there is nothing else to change.
    """
    if partitions is not None:
        return arguments.count(partitions, "partitions", 1, limits.PARTITIONS_MAX)
    if not changes:
        raise InvalidRequest("there is nothing to change: name a setting")
    return 0


def paused(until_ms: int) -> Document:
    """Return the changes that pause a topic, until an instant (Unix ms) or for good (0)."""
    return {"paused": True, "paused_until_ms": until_ms}


RESUMED: Document = {"paused": False, "paused_until_ms": 0}
"""The changes that end a pause."""


def change(topic: str, changes: Document, partitions: int = 0, if_version: int | None = None) -> Steps[None]:
    """Change a topic; done once every partition applies the change, added ones included.

    Raises:
        VersionDiffers: its settings are of another version than `if_version`; nothing was changed.
    """
    update_id = os.urandom(16)
    expected = None if if_version is None else arguments.count(if_version, "if_version", 0, VERSION_MAX)
    standing: Document = yield store(topic, update_id, changes, partitions, expected)
    if expected is not None and standing["update"] != update_id.hex():
        present = int(standing["version"])
        raise VersionDiffers(
            f"the settings of topic {topic!r} have version {present}, and version {expected} was expected",
            present,
        )
    yield from await_version(topic, standing)


def store(
    topic: str, update_id: bytes, changes: Document, partitions: int = 0, if_version: int | None = None
) -> Call[Document]:
    """Store a change, to be applied by all partitions soon; the answer says how the topic stands.

    With `if_version` nothing is stored if the settings are of another version. Then "update" is that of another change.
    """
    name, document = arguments.topic_name(topic), json.dumps(changes)
    named: list[int] = []
    return Call(
        lambda call, at: events.UpdateTopic(
            call, at, update_id, name, document, partitions, if_version, named
        ),
        lambda standing: standing,
    )


def await_version(topic: str, standing: Document) -> Steps[None]:
    """Wait until every partition has applied a change that is stored."""
    version, uids = int(standing["version"]), list(standing["partitions"])
    try:
        yield in_force(topic, version, uids)
    except (Unavailable, OutcomeUnknown, PartialFailure) as error:
        outcomes = error.outcomes if isinstance(error, PartialFailure) else [error] * len(uids)
        places = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, Exception)]
        raise NotYetApplied(topic, version, places, str(error)) from error


def in_force(topic: str, version: int, uids: list[int]) -> Call[None]:
    """Wait until these partitions apply a version of the settings, or a later one."""

    def finish(call: PartsCall) -> None:
        return None

    return Call(lambda call, at: events.AwaitSettings(call, at, topic, version, uids), finish)

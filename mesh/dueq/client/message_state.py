"""One message as it is now, and the steps of asking for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from zlib import crc32

from dueq import ids, limits
from dueq.client import arguments, calls, per_row
from dueq.client.calls import Call, Steps
from dueq.client.core.asking.looking import LookAnswer
from dueq.client.core.ports import events
from dueq.client.unique import unique_key
from dueq.errors import Broken, MessageNotFound, VersionDiffers
from dueq_codecs.meta import split_meta
from dueq_codecs.records import Outcome


@dataclass(frozen=True, slots=True)
class MessageState:
    """A message as its leader knows it.

    Attributes:
        id: 26 characters.
        topic: name.
        partition: its place in the topic, from 0.
        key: the name that its producer gave it, "" when there is none.
        state: "waiting"; "leased": a consumer has it; or "dead": it is not tried again.
        due: what the producer asked for, Unix ms.
        waits_until: when it becomes ready, Unix ms: `due`, or later (scheduled late, or to be delivered again).
        version: grows whenever the message is moved or changed.
        size: bytes of its payload.
        attempt: deliveries so far, the present one included.
        rank: of a priority or fair topic; 0 elsewhere.
        group: of a fair topic; "" when it has none.
        headers: what its producer said about it.
        hidden: its job is not committed yet: it is not delivered before that.
        holder: id of the consumer that has it, 32 hex digits; "" while it waits.
        token: of the lease, which `settle` takes; 0 while it waits.
        lease_ends: when the lease runs out, Unix ms by mesh time; None while it waits, and when the lease is ending.
        payload: the bytes; None when they were not asked for.
        expires: from this instant on it is not delivered any more, Unix ms; 0: never.
        died_at: when it died, Unix ms; 0: it lives.
        reason: why it was given back last; "" where nobody has said.
    """

    id: str
    topic: str
    partition: int
    key: str
    state: Literal["waiting", "leased", "dead"]
    due: int
    waits_until: int
    version: int
    size: int
    attempt: int
    rank: int = 0
    group: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    hidden: bool = False
    holder: str = ""
    lease_ends: int | None = None
    payload: bytes | None = None
    expires: int = 0
    died_at: int = 0
    reason: str = ""
    token: int = 0


def get(topic: str, message_id: str, payload: bool, linearizable: bool) -> Steps[MessageState]:
    """Ask for one message; a long payload comes chunk by chunk."""
    name, [text] = arguments.topic_name(topic), calls.one_id(message_id)
    answer: LookAnswer = yield _look(name, text, payload, linearizable)
    document = _document(answer, name, text)
    body = bytes(answer.body)
    if payload and document["upload"]:
        body = yield from _chunks(name, text, document)
    return _whole(name, text, document, body, payload)


def _whole(topic: str, message_id: str, document: dict[str, Any], body: bytes, payload: bool) -> MessageState:
    if payload and (len(body) != document["size"] or crc32(body) != document["crc"]):
        raise Broken(f"the payload of message {message_id} of {topic!r} is damaged")
    return _state(topic, message_id, document, body, payload)


def get_by_key(
    topic: str, key: str | None, group: str | None, payload: bool, linearizable: bool
) -> Steps[MessageState]:
    """Ask for the message that a unique key names."""
    name, text = arguments.topic_name(topic), unique_key(key)
    within = None if group is None else per_row.one_group(group)

    def build(number: int, deadline_us: int) -> events.Event:
        return events.Look(
            number,
            deadline_us,
            name,
            0,
            "message",
            current=linearizable,
            payload=payload,
            key=text,
            group=within,
        )

    answer: LookAnswer = yield Call(build, lambda answer: answer)
    if not answer.document:
        raise MessageNotFound(f"the key {text!r} names no message of {name!r}")
    document: dict[str, Any] = json.loads(answer.document)
    message_id = ids.to_text(ids.MessageId(*document["id"]))
    if payload and document["upload"]:
        found = yield from get(name, message_id, payload, linearizable)
        return found
    return _whole(name, message_id, document, bytes(answer.body), payload)


def _look(
    topic: str, message_id: str, payload: bool, current: bool, upload: int = 0, chunk: int = 0
) -> Call[Any]:
    columns = per_row.id_columns([message_id])
    first, uid, sequence, row = (int(column[0]) for column in columns)

    def build(number: int, deadline_us: int) -> events.Event:
        return events.Look(
            number, deadline_us, topic, uid, "message", first, sequence, row, current, payload, upload, chunk
        )

    return Call(build, lambda answer: answer)


def _document(answer: LookAnswer, topic: str, message_id: str) -> dict[str, Any]:
    if not answer.document:
        raise MessageNotFound(
            f"message {message_id} of {topic!r} is done, cancelled or expired, or never was"
        )
    found: dict[str, Any] = json.loads(answer.document)
    return found


def _chunks(topic: str, message_id: str, document: dict[str, Any]) -> Steps[bytes]:
    """Read a long payload."""
    pieces: list[bytes] = []
    for chunk in range(-(-document["size"] // limits.CHUNK_BYTES)):
        try:
            answer: LookAnswer = yield _look(topic, message_id, True, False, document["upload"], chunk)
        except Broken:
            again: LookAnswer = yield _look(topic, message_id, False, False)
            _document(again, topic, message_id)  # it may have been finished meanwhile
            raise
        pieces.append(bytes(answer.body))
    return b"".join(pieces)


def _state(topic: str, message_id: str, found: dict[str, Any], body: bytes, payload: bool) -> MessageState:
    key, headers, rest = split_meta(found["meta"], body) if found["meta"] else ("", {}, body)
    prefix = len(body) - len(rest)
    headers = json.loads(found["headers"]) if "headers" in found else headers
    return MessageState(
        message_id, topic, found["partition"], key, found["state"], found["due"], found["waits_until"],
        found["version"], found["size"] - prefix, found["attempt"], found.get("rank", 0), found.get("group", ""),
        headers, found.get("hidden", False), found.get("holder", ""), found.get("lease_ends"),
        rest if payload else None, found.get("expires", 0), found.get("died_at", 0),
        found.get("reason", ""), found.get("token", 0),
    )  # fmt: skip


def done(many: Call[list[Outcome]], topic: str, message_id: str) -> Steps[None]:
    """Change one message; if it has another version than expected, ask for the present one, to say it."""
    try:
        yield calls.done(many, topic, message_id)
    except VersionDiffers as error:
        present = yield from get(topic, message_id, payload=False, linearizable=True)
        raise VersionDiffers(f"{error}; it has version {present.version}", present.version) from None

"""What a topic has in its hands, and what it has ahead: steps of asking the leaders of its partitions."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dueq import ids, limits
from dueq.client import arguments, message_state, per_row, times
from dueq.client.calls import Call, Steps
from dueq.client.core.asking.looking import LookAnswer
from dueq.client.core.ports import events
from dueq.client.message_state import MessageState
from dueq.errors import InvalidRequest, MessageNotFound


@dataclass(frozen=True, slots=True)
class SecondsCounted:
    """How many messages wait until each second of an interval.

    Attributes:
        counts: (Unix ms of a second, messages), ascending, empty seconds left out.
        complete: all were counted; otherwise there are more than were looked at.
    """

    counts: list[tuple[int, int]]
    complete: bool


def leased(topic: str, after: str | None, limit: int) -> Steps[list[MessageState]]:
    """List messages that consumers have."""
    name = arguments.topic_name(topic)
    arguments.count(limit, "limit", 1, limits.LEASED_LISTED_MAX)
    uids = yield _uids(name)
    uid, key = uids[0], -1
    if after is not None:
        column = per_row.id_columns([after])
        uid, key = int(column[1][0]), int(column[2][0]) << 16 | int(column[3][0])
        if uid not in uids:
            raise InvalidRequest(f"the message {after!r} is of partition {uid}, which is none of {topic!r}")
    found: list[MessageState] = []
    for each in uids[uids.index(uid) :]:
        more, key = True, key if each == uid else -1
        while more:
            answer: LookAnswer = yield _look(name, each, "leased", {"after": key})
            document = json.loads(answer.document)
            more = document["more"]
            for first, sequence, row in document["leased"]:
                key = sequence << 16 | row
                try:
                    state = yield from message_state.get(
                        name, ids.to_text(ids.MessageId(first, each, sequence, row)), False, False
                    )
                except MessageNotFound:
                    continue  # it was finished meanwhile
                if state.state == "leased":
                    found.append(state)
                    if len(found) == limit:
                        return found
    return found


def seconds(topic: str, start: int | datetime, length: int, most: int | None) -> Steps[SecondsCounted]:
    """Count what waits until each second, partition by partition, until `most` messages are counted (None: all)."""
    name = arguments.topic_name(topic)
    from_ms = times.instant_ms(start, "start") // 1000 * 1000
    arguments.count(length, "seconds", 1, limits.FORECAST_SECONDS_MAX)
    uids = yield _uids(name)
    counts: Counter[int] = Counter()
    total = 0
    for uid in uids:
        after: object = None
        while True:
            asked = {"from_ms": from_ms, "until_ms": from_ms + length * 1000, "after": after}
            answer: LookAnswer = yield _look(name, uid, "seconds", asked)
            document = json.loads(answer.document)
            for second, count in document["counts"]:
                counts[second] += count
                total += count
            after = document["after"]
            if most is not None and total >= most and (after is not None or uid != uids[-1]):
                return SecondsCounted(sorted(counts.items()), complete=False)
            if after is None:
                break
    return SecondsCounted(sorted(counts.items()), complete=True)


def _uids(topic: str) -> Call[list[int]]:
    return Call(
        lambda number, at: events.FetchTopics(number, at, topic),
        lambda reply: [partition.uid for partition in reply.topics[0].partitions],
    )


def _look(topic: str, uid: int, what: str, document: dict[str, Any]) -> Call[Any]:
    text = json.dumps(document)
    return Call(
        lambda number, at: events.Look(number, at, topic, uid, what, document=text), lambda answer: answer
    )

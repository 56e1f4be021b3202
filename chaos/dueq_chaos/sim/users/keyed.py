"""Users of unique keys: many messages want few keys, and each answer must be about the key that was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from dueq import ids
from dueq.client.calls import Call
from dueq.client.core import PartsCall
from dueq.client.core.asking.looking import LookAnswer
from dueq.client.core.ports import effects, events
from dueq_chaos.sim.environment.sdk import SimClient
from dueq_chaos.sim.judging.history import History, MessageKey
from dueq_codecs.records import Outcome

KEYS: Final = tuple(f"key-{number}" for number in range(7))
DUPLICATES: Final = (None, "refuse", "keep", "replace", "replace")
_LOOK_US: Final = 10_000_000


def draw_keys(random: Random, rows: int) -> list[str | None]:
    """Return a key for each row; some have none."""
    return [None if random.random() < 0.1 else random.choice(KEYS) for _ in range(rows)]


def kept_rows(call: PartsCall) -> set[int]:
    """Return which rows of an insert were answered with the ids of other messages."""
    found: set[int] = set()
    start = 0
    for at, part in enumerate(call.parts):
        places = call.places[at].tolist() if call.places is not None else range(start, start + part.rows)
        start += part.rows
        if part.reply is not None and part.met:
            outcomes = zip(places, part.outcomes(), strict=True)
            found.update(place for place, outcome in outcomes if outcome is Outcome.KEPT)
    return found


def kept(history: History, payload: bytes, text: str) -> None:
    """A row was answered with the id of another message, which must bear its key; the row must never be seen."""
    history.unacknowledged.pop(payload, None)
    history.refused[payload] = f"{text} was kept"
    bears(history, text, history.keys.get(payload))


def bears(history: History, text: str, key: str | None) -> None:
    """Note if a message, of which it is known what was scheduled, does not bear this key."""
    found = ids.from_text(text)
    message = history.messages.get((found.uid, found.sequence, found.row))
    if message is not None and history.keys.get(message.payload) != key:
        history.misanswered(
            f"{text} was named by the key {key!r}, and bears {history.keys.get(message.payload)!r}"
        )


def look(
    client: SimClient, history: History, topic: str, key: str, then: Callable[[MessageKey], None]
) -> None:
    """Ask which message a key names, and go on with it if it is known."""

    def build(number: int, deadline_us: int) -> events.Event:
        return events.Look(number, deadline_us, topic, 0, "message", current=True, key=key)

    call: Call[Any] = Call(build, lambda answer: answer)
    client.call(call.build, _LOOK_US, partial(_looked, history, key, then))


def _looked(
    history: History, key: str, then: Callable[[MessageKey], None], value: LookAnswer | None,
    failed: effects.Failed | None,
) -> None:  # fmt: skip
    if failed is not None or value is None or not value.document:
        return
    found = ids.MessageId(*json.loads(value.document)["id"])
    bears(history, ids.to_text(found), key)
    known = (found.uid, found.sequence, found.row)
    if known in history.messages:
        then(known)

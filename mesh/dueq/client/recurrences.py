"""Recurrences: what callers say about them, and the calls that follow."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from dueq import ids, limits
from dueq.client import arguments, per_row, times
from dueq.client.arguments import Payload
from dueq.client.calls import Call
from dueq.client.core import PartsCall
from dueq.client.core.asking.inspecting import Inspection
from dueq.client.core.ports import events
from dueq.client.core.ports.shared_body import NamedBody
from dueq.client.partition_views import newest_views
from dueq.client.payloads import payload_columns
from dueq.client.times import Seconds
from dueq.errors import (
    InvalidRequest,
    OutcomeUnknown,
    PayloadTooLarge,
    RecurrenceExists,
    RecurrenceNotFound,
)
from dueq.recurring.checking import check_name, check_payload, check_terms
from dueq.recurring.terms import Terms, packed, terms_of
from dueq_codecs.meta import MetaRefused, packed_headers
from dueq_codecs.records import Outcome
from dueq_codecs.rules import homes_of_recurrence

Instant = int | datetime
Missed = Literal["none", "last", "all"] | int

WORDS: Final = (
    "cron",
    "every",
    "at",
    "zone",
    "start",
    "end",
    "jitter",
    "missed",
    "overlap",
    "headers",
    "rank",
    "group",
)
"""What can be said of the terms, in the order of `said`."""
_MISSED: Final = {"none": 0, "last": 1, "all": limits.MISSED_TICKS_MAX}


@dataclass(frozen=True, slots=True)
class RecurrenceInfo:
    """A recurrence as its topic knows it. Instants are Unix ms.

    Attributes:
        topic: whose messages it makes.
        name: unique in its topic.
        cron, every_ms, at_ms: when it fires: a cron line, a period, or instants; the other two are empty.
        zone: the time zone of the cron line.
        start_ms, end_ms: no tick before the first, none at or after the second; 0: no bound.
        jitter_ms: a message is due up to this long after its tick.
        missed: how many missed ticks are made up for, the latest ones.
        overlap: "allow", or "skip".
        payload: of its messages; None in a list, and where it is a shared body.
        payload_bytes: how long that is.
        paused: it waits for no tick.
        next_ms: its next tick; 0: there is none.
        last_ms: the last tick that has come and has a message; 0: none has.
        unfinished: messages of it that wait or that consumers hold.
        messages: that it has made, but for those that were taken back.
        skipped: how often it has moved on without a message: ticks were missed, or overlapped.
        headers: of its messages.
        rank, group: of its messages.
        body: SHA-256 of the shared body that is their payload, in hex; "": they have one of the recurrence.
    """

    topic: str
    name: str
    cron: str
    every_ms: int
    at_ms: tuple[int, ...]
    zone: str
    start_ms: int
    end_ms: int
    jitter_ms: int
    missed: int
    overlap: str
    payload: bytes | None
    payload_bytes: int
    paused: bool
    next_ms: int
    last_ms: int
    unfinished: int
    messages: int
    skipped: int
    headers: dict[str, str] = field(default_factory=dict)
    rank: int = 0
    group: str = ""
    body: str = ""


# ---------------------------------------------------------------- what callers say


def said(
    cron: str | None,
    every: Seconds | None,
    at: Iterable[Instant] | None,
    zone: str | None,
    start: Instant | None,
    end: Instant | None,
    jitter: Seconds | None,
    missed: Missed | None,
    overlap: str | None,
    headers: Mapping[str, str] | None,
    rank: int | None = None,
    group: str | None = None,
) -> dict[str, Any]:
    """Return what was said of the terms, as a document; None: nothing was said.

    Raises:
        InvalidRequest: a value is of the wrong type, or outside its limits.
    """
    found: dict[str, Any] = {}
    for what, text in (("cron", cron), ("zone", zone), ("overlap", overlap)):
        if text is not None:
            found[what] = _text(what, text)
    if every is not None:
        found["every_ms"] = times.duration_ms(every, "every", limits.EVERY_MS_MIN, limits.EVERY_MS_MAX)
    if at is not None:
        found["at_ms"] = _instants(at)
    for what, instant in (("start", start), ("end", end)):
        if instant is not None:
            found[f"{what}_ms"] = times.instant_ms(instant, what)
    if jitter is not None:
        found["jitter_ms"] = times.duration_ms(jitter, "jitter", 0, limits.JITTER_MS_MAX)
    if missed is not None:
        found["missed"] = _missed(missed)
    if headers is not None:
        found["headers"] = _headers(headers)
    if rank is not None:
        found["rank"] = per_row.one_rank(rank)
    if group is not None:
        found["group"] = per_row.one_group(group)
    return found


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    try:
        packed_headers(headers)
    except MetaRefused as refused:
        raise InvalidRequest(str(refused)) from None
    return dict(headers)


def _text(what: str, text: str) -> str:
    if not isinstance(text, str) or not text:
        raise InvalidRequest(f"{what} is a str, not {text!r:.80}")
    return arguments.unicode_text(text, what)


def _instants(at: Iterable[Instant]) -> list[int]:
    if isinstance(at, str | bytes) or not isinstance(at, Iterable):
        raise InvalidRequest(f"at is a list of instants, not {at!r:.80}")
    return sorted({times.instant_ms(instant, "at") for instant in arguments.rows_of(at, "at")})


def _missed(missed: Missed) -> int:
    if isinstance(missed, str):
        if missed not in _MISSED:
            raise InvalidRequest(f"missed is one of {', '.join(_MISSED)}, or a number, not {missed!r:.80}")
        return _MISSED[missed]
    return arguments.count(missed, "missed", 0, limits.MISSED_TICKS_MAX)


def checked(document: dict[str, Any], now_ms: int) -> Terms:
    """Return the terms of a new recurrence.

    Raises:
        InvalidRequest: they make no sense, or never fire after now.
    """
    terms = terms_of(packed(document))
    check_terms(terms, terms.start_ms or now_ms, now_ms)
    return terms


def payload_text(payload: Payload, topic: str) -> str:
    """Return a payload as documents have it.

    Raises:
        InvalidRequest: it is not bytes-like.
        PayloadTooLarge: it is longer than that of any recurrence.
    """
    (taken,) = payload_columns([payload]).payloads
    if too_long := check_payload(bytes(taken), topic, 0):
        raise PayloadTooLarge(too_long)
    return b64encode(taken).decode("ascii")


# ---------------------------------------------------------------- calls


def act(topic: str, name: str, document: dict[str, Any], payload: Payload | None = None) -> Call[None]:
    """Do something to a recurrence; anything but DONE is raised.

    Args:
        topic: its topic.
        name: of the recurrence.
        document: what is to be done.
        payload: of its messages from now on, or a shared body; None: as before.

    Raises:
        InvalidRequest: the payload is not bytes-like.
        PayloadTooLarge: it is longer than that of any recurrence.
    """

    def finish(call: PartsCall) -> None:
        _raise_unless_done(topic, name, call)

    if isinstance(payload, NamedBody):
        return Call(_build(topic, name, document, payload), finish, of_one=True)
    own = {} if payload is None else {"payload": payload_text(payload, topic)}
    return Call(_build(topic, name, document | own), finish, of_one=True)


def trigger(topic: str, name: str) -> Call[str]:
    """Have one message made; its id is returned."""

    def finish(call: PartsCall) -> str:
        _raise_unless_done(topic, name, call)
        outcomes = call.outcomes()
        part = call.parts[outcomes.index(Outcome.DONE)]
        reply = part.reply
        assert reply is not None
        return ids.to_text(ids.MessageId(reply.stamp, part.uid, reply.sequence, reply.row))

    return Call(_build(topic, name, {"action": "trigger"}), finish, of_one=True)


def _build(topic: str, name: str, document: dict[str, Any], body: NamedBody | None = None) -> Any:
    arguments.topic_name(topic)
    check_name(name)
    text = packed(document)
    group = document.get("group", "") if document["action"] == "create" else None
    return lambda call, deadline_us: events.ActOnRecurrence(call, deadline_us, topic, name, text, group, body)


def _raise_unless_done(topic: str, name: str, call: PartsCall) -> None:
    """Some partition has the recurrence; where messages have groups all of them were told."""
    outcomes = call.outcomes()
    outcome = max(outcomes, key=lambda each: (each is Outcome.DONE, each is not Outcome.NOT_FOUND))
    if outcome is Outcome.EXISTS:
        raise RecurrenceExists(f"topic {topic!r} has a recurrence {name!r} already")
    if outcome is Outcome.NOT_FOUND:
        raise RecurrenceNotFound(f"topic {topic!r} has no recurrence {name!r}")
    if outcome is not Outcome.DONE:
        raise OutcomeUnknown(f"what became of recurrence {name!r} of {topic!r} is not known any more")


# ---------------------------------------------------------------- reading


def look(topic: str, name: str) -> Call[RecurrenceInfo | None]:
    """Read one recurrence, even if its partition is between two leaders just now."""
    arguments.topic_name(topic)
    check_name(name)

    def finish(found: Inspection) -> RecurrenceInfo | None:
        info = found.metadata.topics[0]
        count = info.home_partitions or len(info.partitions)
        places = homes_of_recurrence(name, None, info.kind, count)
        views = newest_views(found, topic, {info.partitions[place].uid for place in places})
        return next((_info(topic, shown) for view in views.values() for shown in view["recurrences"]), None)

    return Call(lambda call, at: events.Inspect(call, at, f"recurrence {name}", topic), finish, reads=True)


@dataclass(slots=True)
class Page:
    """Some recurrences by name, and the name after which to read on; "": these were the last."""

    recurrences: list[RecurrenceInfo]
    after: str


def page(topic: str, after: str) -> Call[Page]:
    """Read the next recurrences of all partitions after a name."""

    def finish(found: Inspection) -> Page:
        placement = {partition.uid for partition in found.metadata.topics[0].partitions}
        views = newest_views(found, topic, placement).values()
        shown = sorted(
            (each for view in views for each in view["recurrences"]), key=lambda each: each["name"]
        )
        # Behind the end of one partition's part there may be more of its own.
        ends = [view["recurrences"][-1]["name"] for view in views if view["more"]]
        end = min(ends, default="")
        return Page([_info(topic, each) for each in shown if not end or each["name"] <= end], end)

    return Call(lambda call, at: events.Inspect(call, at, f"recurrences {after}", topic), finish, reads=True)


def _info(topic: str, shown: dict[str, Any]) -> RecurrenceInfo:
    terms = terms_of(packed(shown["terms"]))
    payload = shown.get("payload")
    return RecurrenceInfo(
        topic, shown["name"], terms.cron, terms.every_ms, terms.at_ms, terms.zone, terms.start_ms, terms.end_ms,
        terms.jitter_ms, terms.missed, terms.overlap, b64decode(payload) if payload is not None else None,
        shown["payload_bytes"], shown["paused"], shown["next"], shown["last"], shown["unfinished"],
        shown["messages"], shown["skipped"], dict(terms.headers), terms.rank, terms.group, terms.body,
    )  # fmt: skip

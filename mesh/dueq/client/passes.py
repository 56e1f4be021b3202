"""Passes: work on all messages of a topic that match a filter. Brokers do it, and their owner follows the progress."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from dueq.client import arguments, times
from dueq.client.calls import Call, Steps
from dueq.client.core import PartsCall
from dueq.client.core.asking.inspecting import Inspection
from dueq.client.core.asking.looking import LookAnswer
from dueq.client.core.ports import events
from dueq.client.times import Seconds
from dueq.errors import InvalidRequest, PassExists
from dueq.limits import DELAY_MS_MAX, DUE_MS_MAX, PASS_NAME_MAX
from dueq_codecs.records import Outcome

STATES: Final = ("waiting", "dead")
POLL_S: Final = 0.1
_OVER: Final = ("ended", "stopped")

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pass is, over all partitions that answered.

    Attributes:
        done: messages that it has finished.
        skipped: messages that matched and were left as they are, by reason, once it has ended: "leased" (a consumer
            had them), "horizon" (their new due was too late for the topic), "expiry" (or for themselves).
        left: at most this many messages are still to be looked at; may be too high.
        ended: every partition has worked it off, or it was stopped.
        known: some partition knows it, or not all have answered.
    """

    done: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    left: int = 0
    ended: bool = False
    known: bool = True


def added(parts: Sequence[Progress]) -> Progress:
    """Return how far several passes are together."""
    skipped: Counter[str] = Counter()
    for part in parts:
        skipped.update(part.skipped)
    return Progress(
        sum(part.done for part in parts), dict(skipped), sum(part.left for part in parts),
        # One that nothing is known of any more ended before the others.
        any(part.known for part in parts) and all(part.ended or not part.known for part in parts),
        any(part.known for part in parts),
    )  # fmt: skip


def new_name() -> str:
    """Return a name that no other pass has."""
    return secrets.token_hex(16)


def purged(state: str) -> tuple[str, ...]:
    """Return the states that a purge is about, one pass each.

    Raises:
        InvalidRequest: messages in that state cannot be purged.
    """
    arguments.one_of(state, "state", (*STATES, "all"))
    return STATES if state == "all" else (state,)


def purge(topic: str, name: str, state: str) -> Call[None]:
    """Begin to finish all messages in a state."""
    return begin(topic, name, {"do": "purge", "filter": {"state": state}})


def begin(topic: str, name: str, work: Document) -> Call[None]:
    """Begin a pass, or go on with the one of this name if it does the same."""
    return _act(topic, name, work)


def checked_name(name: str) -> str:
    """Check the name of a pass.

    Raises:
        InvalidRequest: it is no str of 1 to 64 characters.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= PASS_NAME_MAX or " " in name:
        raise InvalidRequest(
            f"a pass's name is a str of 1 to {PASS_NAME_MAX} characters without spaces, not {name!r:.100}"
        )
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the pass's name {name!r:.100} is not Unicode text: {error.reason}") from None
    return name


def shift_ms(by: timedelta) -> int:
    """Return a length of time in ms, rounded up.

    Raises:
        InvalidRequest: it is no timedelta, or too long.
    """
    if not isinstance(by, timedelta):
        raise InvalidRequest(f"by is a timedelta, not {by!r:.80}")
    whole, rest = divmod(by, timedelta(milliseconds=1))
    shift = whole + bool(rest)
    if abs(shift) > DUE_MS_MAX:
        raise InvalidRequest(f"by is at most {DUE_MS_MAX} ms either way, not {shift}")
    return shift


def spread_ms(spread: Seconds) -> int:
    """Return the length of an interval in ms.

    Raises:
        InvalidRequest: it is negative, or too long.
    """
    return times.duration_ms(spread, "spread", 0, DELAY_MS_MAX)


def count(topic: str, wanted: Document) -> Steps[int]:
    """Count what matches a filter, partition by partition."""
    name = arguments.topic_name(topic)
    uids: list[int] = yield Call(
        lambda number, at: events.FetchTopics(number, at, name),
        lambda reply: [partition.uid for partition in reply.topics[0].partitions],
    )
    matched = 0
    for uid in uids:
        after: object = None
        while True:
            answer: LookAnswer = yield _count(name, uid, json.dumps({"filter": wanted, "after": after}))
            found = json.loads(answer.document)
            matched += found["matched"]
            after = found["after"]
            if after is None:
                break
    return matched


def _count(topic: str, uid: int, document: str) -> Call[Any]:
    return Call(
        lambda number, at: events.Look(number, at, topic, uid, "count", document=document),
        lambda answer: answer,
    )


def stop(topic: str, name: str) -> Call[None]:
    """Stop a pass: what it has finished stays so."""
    return _act(topic, name, {"do": "stop"})


def _act(topic: str, name: str, document: Document) -> Call[None]:
    text, named = json.dumps(document), arguments.topic_name(topic)

    def finish(call: PartsCall) -> None:
        if Outcome.EXISTS in call.outcomes():
            raise PassExists(
                f"another pass of topic {topic!r} has the name {name!r}, and does something else"
            )

    return Call(lambda number, at: events.ActOnPass(number, at, named, name, text), finish)


def look(topic: str, name: str) -> Call[Progress]:
    """Ask how far a pass is."""
    return Call(lambda number, at: events.Inspect(number, at, f"pass {name}", topic), _progress)


def _progress(found: Inspection) -> Progress:
    uids = {partition.uid for partition in found.metadata.topics[0].partitions}
    views: dict[int, dict[str, Any]] = {}
    for text in found.documents.values():
        for view in json.loads(text)["partitions"]:
            known = views.get(view["uid"])
            if view["uid"] in uids and (known is None or view["sequence"] > known["sequence"]):
                views[view["uid"]] = view
    begun = [view for view in views.values() if view["state"] != "unknown"]
    return Progress(
        sum(int(view["done"]) for view in begun),
        _together(view["skipped"] for view in begun),
        sum(int(view["left"]) for view in begun),
        # A partition that was added since has nothing to do with it.
        bool(begun) and len(views) == len(uids) and all(view["state"] in _OVER for view in begun),
        bool(begun) or len(views) < len(uids),
    )


def _together(skipped: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums by reason, without what is 0."""
    total: Counter[str] = Counter()
    for each in skipped:
        total.update(each)
    return {reason: count for reason, count in sorted(total.items()) if count}

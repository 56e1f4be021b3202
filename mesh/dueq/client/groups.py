"""Groups of fair topics: what callers set, and what they read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dueq.client import arguments
from dueq.client.calls import Call
from dueq.client.core import PartsCall
from dueq.client.core.asking.inspecting import Inspection
from dueq.client.core.ports import events
from dueq.client.partition_views import newest_views
from dueq.errors import InvalidRequest, OutcomeUnknown
from dueq_codecs.groups import GroupRefused, check_group, check_group_changes, encode_group_changes
from dueq_codecs.records import Outcome


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group as its topic knows it.

    Attributes:
        topic: whose group it is.
        name: such as "acme.reports".
        messages: its own that wait or that consumers hold; those of groups below it are not counted.
        weight: how many messages it gets at its turn.
        max_unacked: messages that consumers may hold at once, those of groups below it included; 0: no limit.
        paused: none of its messages is delivered, nor of groups below it.
        rate: the most messages that are delivered in a second, those of groups below it included; 0: no limit.
        burst: how many of them at once; 0: as many as in a second.
    """

    topic: str
    name: str
    messages: int
    weight: int
    max_unacked: int
    paused: bool
    rate: int
    burst: int


def set_group(topic: str, group: str, changes: dict[str, Any]) -> Call[None]:
    """Set something for a group; what is None stays as it is."""
    arguments.topic_name(topic)
    if not isinstance(group, str) or not group:
        raise InvalidRequest(f"a group is a str that is not empty, not {group!r:.80}")
    given = {name: arguments.plain(value) for name, value in changes.items() if value is not None}
    try:
        check_group(group)
        check_group_changes(given)
    except GroupRefused as refused:
        raise InvalidRequest(str(refused)) from None
    document = encode_group_changes(given)

    def finish(call: PartsCall) -> None:
        if call.outcomes()[0] is not Outcome.DONE:
            raise OutcomeUnknown(
                f"what became of the change of group {group!r} of {topic!r} is not known any more"
            )

    return Call(lambda call, at: events.SetGroup(call, at, topic, group, document), finish)


@dataclass(slots=True)
class Page:
    """Some groups by name, and the name after which to read on; "": these were the last."""

    groups: list[GroupInfo]
    after: str


def page(topic: str, after: str) -> Call[Page]:
    """Read the next groups of all partitions after a name."""

    def finish(found: Inspection) -> Page:
        placement = {partition.uid for partition in found.metadata.topics[0].partitions}
        views = newest_views(found, topic, placement).values()
        shown = sorted((each for view in views for each in view["groups"]), key=lambda each: each["name"])
        # Behind the end of one partition's part there may be more of its own.
        end = min((view["groups"][-1]["name"] for view in views if view["more"]), default="")
        return Page([GroupInfo(topic, **each) for each in shown if not end or each["name"] <= end], end)

    return Call(lambda call, at: events.Inspect(call, at, f"groups {after}", topic), finish, reads=True)

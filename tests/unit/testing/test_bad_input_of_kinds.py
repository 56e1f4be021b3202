"""What callers say of ranks, groups and recurrences that cannot be: each verb names the value, and changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dueq import Client, Filter, InvalidRequest
from dueq.testing import Mesh, mesh

Verb = Callable[[Client, Any], object]

RANKS: tuple[Any, ...] = (-1, 65_536, 1.5, True, "1", b"1", math.nan, 10**30, [], None)
GROUPS: tuple[Any, ...] = ("g" * 256, "a..b", ".", ".".join("a" * 17), "\ud800", b"a", 1, True, math.nan)
WEIGHTS = (0, -1, 1_001, 10**30, 1.5, "1", True, math.nan, math.inf)
LIMITS = (-1, 1_000_001, 10**30, 1.5, "1", True, math.nan, math.inf)
LINES = (
    "", "* * * *", "*/0 * * * *", "0-59/0 * * * *", "0 0 31 2 *", "60 * * * *", "5-1 * * * *", "@daily",
    "\n\n\n\n\n", "٣ * * * *", "\ud800 * * * *", "* * * * *\0", "* " * 300, 5, b"* * * * *", True,
)  # fmt: skip
ZONES = ("", "Europe/Atlantis", "../../etc/passwd", "/etc/localtime", "UTC\0", "x" * 5_000, "Europe", 5)


@pytest.fixture(scope="module")
def running() -> Iterator[Mesh]:
    with mesh() as found:
        client = found.client()
        for kind in ("timeline", "priority", "fair"):
            client.create_topic(kind, kind=kind)
        yield found


def first(client: Client, topic: str) -> str:
    """The id of the topic's one message."""
    with client.producer(topic) as producer:
        known = [message.id for message in client.browse(topic)]
        return known[0] if known else producer.schedule(b"x", 1 << 47)


def state(client: Client) -> object:
    """All that the verbs below could have changed."""
    return [
        (topic, [(message.id, message.rank, message.group) for message in client.browse(topic)],
         [(each.name, each.next_ms, each.paused) for each in client.recurrences(topic)],
         list(client.groups(topic)))
        for topic in ("timeline", "priority", "fair")
    ]  # fmt: skip


VERBS: dict[str, tuple[tuple[Any, ...], Verb]] = {
    "schedule rank": (RANKS[:-1], lambda c, v: c.producer("priority").schedule(b"x", 1 << 47, rank=v)),
    "schedule many ranks": (
        RANKS[:-1], lambda c, v: c.producer("priority").schedule_many([b"x"] * 2, 1 << 47, ranks=v)
    ),
    "schedule a row's rank": (
        RANKS, lambda c, v: c.producer("priority").schedule_many([b"x"] * 2, 1 << 47, ranks=[1, v])
    ),
    "change rank": (RANKS, lambda c, v: c.producer("priority").change(first(c, "priority"), rank=v)),
    "change many": (RANKS, lambda c, v: c.producer("priority").change_many([first(c, "priority")], ranks=v)),
    "change where": (RANKS, lambda c, v: c.change_where("priority", Filter(), rank=v)),
    "rank of a recurrence": (RANKS[:-1], lambda c, v: c.create_recurrence("priority", "r", every=60, rank=v)),
    "rank in a timeline": ((0, 1), lambda c, v: c.producer("timeline").change(first(c, "timeline"), rank=v)),
    "schedule group": (GROUPS, lambda c, v: c.producer("fair").schedule(b"x", 1 << 47, group=v)),
    "schedule many groups": (
        GROUPS, lambda c, v: c.producer("fair").schedule_many([b"x"] * 2, 1 << 47, groups=v)
    ),
    "set group": ((*GROUPS, ""), lambda c, v: c.set_group("fair", v, weight=2)),
    "filter group": (GROUPS, lambda c, v: c.count_where("fair", Filter(group=v))),
    "group of a recurrence": (GROUPS, lambda c, v: c.create_recurrence("fair", "r", every=60, group=v)),
    "group elsewhere": (("timeline", "priority"), lambda c, v: c.set_group(v, "a", weight=2)),
    "weight": (WEIGHTS, lambda c, v: c.set_group("fair", "a", weight=v)),
    "max_unacked": (LIMITS, lambda c, v: c.set_group("fair", "a", max_unacked=v)),
    "rate": (LIMITS, lambda c, v: c.set_group("fair", "a", rate=v)),
    "burst": (LIMITS, lambda c, v: c.set_group("fair", "a", burst=v)),
    "paused": ((0, 1, "yes", []), lambda c, v: c.set_group("fair", "a", paused=v)),
    "cron": (LINES, lambda c, v: c.create_recurrence("timeline", "r", cron=v)),
    "zone": (ZONES, lambda c, v: c.create_recurrence("timeline", "r", cron="0 3 * * *", zone=v)),
    "every": (
        (0, -1, 0.5, math.nan, math.inf, "60", True, 1e12),
        lambda c, v: c.create_recurrence("timeline", "r", every=v),
    ),
    "jitter": (
        (-1, 60.0, math.nan, math.inf, "1", 1e9),
        lambda c, v: c.create_recurrence("timeline", "r", every=60.0, jitter=v),
    ),
    "end before the start": (
        (1, 5_000, 9_000), lambda c, v: c.create_recurrence("timeline", "r", every=60.0, start=9_000, end=v)
    ),
    "missed": (
        (-1, 101, 1.5, True, "some"), lambda c, v: c.create_recurrence("timeline", "r", every=60.0, missed=v)
    ),
    "topic's rate": (
        (-1, 0.0005, math.nan, math.inf, "1", True, 1e7), lambda c, v: c.update_topic("timeline", rate=v)
    ),
    "state of a purge": (("", "some", 5, None), lambda c, v: c.purge("timeline", state=v)),
    "partitions": ((0, -1, 1_025, 1.5, "2", True), lambda c, v: c.update_topic("timeline", partitions=v)),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.filterwarnings("ignore:.*seconds")
def test_it_is_refused_by_name_and_changes_nothing(running: Mesh, verb: str) -> None:
    client = running.client()
    for topic in ("timeline", "priority"):
        first(client, topic)
    before = state(client)
    values, said = VERBS[verb]
    for value in values:
        with pytest.raises(InvalidRequest) as refused:
            said(client, value)
        assert len(str(refused.value)) < 500, "a refusal is a line"
    assert state(client) == before

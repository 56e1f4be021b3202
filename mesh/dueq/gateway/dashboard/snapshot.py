"""One look at the whole mesh, and what it says of each topic and broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from dueq import TopicInfo, limits
from dueq.client import calls
from dueq.client.statistics import StatisticsRow
from dueq.errors import DueqError
from dueq.gateway.service import Service

Document = dict[str, Any]
Wanted = tuple[str, int]
"""A forecast: of which topic, and how far ahead, seconds."""

_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Ahead:
    """A forecast.

    Attributes:
        counts: (Unix ms of a second, messages due in it); of hours instead of seconds, beyond an hour.
        exact_until_ms: up to when seconds are exact, Unix ms; None: all of them.
    """

    counts: list[tuple[int, int]] = field(default_factory=list)
    exact_until_ms: int | None = None


@dataclass(slots=True)
class TopicSight:
    """A topic as one look has found it.

    Attributes:
        info: its settings.
        scheduled, ready, leased, dead: messages, over the partitions that are led.
        leaderless: partitions that nobody leads.
        behind: partitions with fewer in-sync replicas than replicas.
        next_minute: messages due in each of the next 60 seconds; empty: none.
        partitions: documents of the partitions that some broker told of.
        consumers: documents of the sessions of its consumers.
    """

    info: TopicInfo
    scheduled: int = 0
    ready: int = 0
    leased: int = 0
    dead: int = 0
    leaderless: int = 0
    behind: int = 0
    next_minute: list[int] = field(default_factory=list)
    partitions: list[Document] = field(default_factory=list)
    consumers: list[Document] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Messages that it holds."""
        return self.scheduled + self.ready + self.leased + self.dead


@dataclass(slots=True)
class Sight:
    """The mesh as one look has found it.

    Attributes:
        number: of the look, from 1.
        at_ms: mesh time, Unix ms.
        took_s: how long it took.
        brokers: documents by id, as the brokers tell them.
        topics: by name, sorted.
        statistics: the brokers' counts of the present hour.
        forecasts: by topic and seconds ahead, where they were asked for.
        fault: why nothing was seen; the rest is then of the look before.
        seen_ms: when something was seen last, Unix ms; 0: never.
        unseen: partitions that nobody told of because they did not fit into the brokers' answers.
    """

    number: int
    at_ms: int
    took_s: float = 0.0
    brokers: dict[str, Document] = field(default_factory=dict)
    topics: dict[str, TopicSight] = field(default_factory=dict)
    statistics: list[StatisticsRow] = field(default_factory=list)
    forecasts: dict[Wanted, Ahead] = field(default_factory=dict)
    fault: str = ""
    seen_ms: int = 0
    unseen: int = 0


async def look(service: Service, number: int, wanted: Collection[Wanted], patience_s: float) -> Sight:
    """Look at the mesh: three questions to each broker, and one more for each topic whose forecast is wanted.

    Args:
        service: the gateway's access to it.
        number: of the look.
        wanted: forecasts.
        patience_s: brokers that have not answered by three quarters of it count as away.

    Raises:
        DueqError: no broker answered.
    """
    begun = time.monotonic()
    client = service.client
    at_ms = await service.now_us() // 1000
    hour = at_ms // _HOUR_MS
    # Just after the hour, the last counts of the one before are still wanted.
    first = hour - 1 if at_ms % _HOUR_MS < 2 * limits.DASHBOARD_PAUSE_MS_MAX else hour
    status, infos, part = await asyncio.gather(
        client.status(timeout=patience_s),
        client.topics(timeout=patience_s),
        client.connection.run(calls.statistics(first), patience_s),
    )
    sight = Sight(number, at_ms, brokers=status["brokers"], statistics=part.rows, seen_ms=at_ms)
    sight.topics = _topics(infos, status)
    missing = sum(topic.info.partitions - len(topic.partitions) for topic in sight.topics.values())
    if any(broker.get("partitions_left_out") for broker in sight.brokers.values()):
        sight.unseen = max(missing, 0)
    elif missing > 0:
        _count_missing(sight)
    sight.forecasts = await _forecasts(service, sight, wanted, patience_s)
    sight.took_s = time.monotonic() - begun
    return sight


def fullest(topics: Collection[TopicSight]) -> list[TopicSight]:
    """Return the topics with most messages ahead, those only that get a forecast of their own."""
    waiting = [topic for topic in topics if topic.scheduled]
    waiting.sort(key=lambda topic: (-topic.scheduled, topic.info.name))
    return waiting[: limits.DASHBOARD_FORECASTS_MAX]


def _topics(infos: list[TopicInfo], status: Document) -> dict[str, TopicSight]:
    topics = {info.name: TopicSight(info) for info in infos}
    for name, told in status["topics"].items():
        topic = topics.get(name)
        if topic is not None:
            _add_partitions(topic, told["partitions"])
    for session in status["consumers"]:
        topic = topics.get(session["topic"])
        if topic is not None:
            topic.consumers.append(session)
    return topics


def _count_missing(sight: Sight) -> None:
    """Partitions whose brokers are all away: nobody tells of them."""
    for topic in sight.topics.values():
        topic.leaderless += max(topic.info.partitions - len(topic.partitions), 0)


def _add_partitions(topic: TopicSight, partitions: list[Document]) -> None:
    topic.partitions = partitions
    for each in partitions:
        topic.scheduled += int(each.get("scheduled", 0))
        topic.ready += int(each.get("ready", 0))
        topic.leased += int(each.get("leased", 0))
        topic.dead += int(each.get("dead", 0))
        topic.leaderless += not each.get("serving")
        topic.behind += len(each.get("isr", ())) < len(each.get("replicas", ()))
        due = each.get("due_next_minute")
        if due:
            sums = topic.next_minute or [0] * len(due)
            topic.next_minute = [one + more for one, more in zip(sums, due, strict=True)]


async def _forecasts(
    service: Service, sight: Sight, wanted: Collection[Wanted], patience_s: float
) -> dict[Wanted, Ahead]:
    run = service.client.connection.run

    async def one(name: str, seconds: int) -> Ahead:
        try:
            if seconds <= limits.FORECAST_SECONDS_MAX:
                return Ahead(*await run(calls.forecast_known(name, seconds), patience_s))
            hours = await run(calls.hours(name), patience_s)
        except DueqError:
            return Ahead()  # it was deleted meanwhile, or its leader is changing
        return Ahead([(hour, count) for hour, count in hours if hour < sight.at_ms + seconds * 1000])

    asked = [each for each in wanted if each[0] in sight.topics]
    found = await asyncio.gather(*(one(name, seconds) for name, seconds in asked))
    return dict(zip(asked, found, strict=True))

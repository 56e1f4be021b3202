"""One look at the whole mesh, and its findings about each topic and broker."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final

from dueq import TopicInfo, limits
from dueq.client import calls, groups, summaries
from dueq.client.statistics import StatisticsRow
from dueq.client.summaries import MeshSummary, ReplicaCounts, TopicCounts
from dueq.errors import DueqError
from dueq.gateway import pauses
from dueq.gateway.catalogue import Catalogue
from dueq.gateway.service import Service
from dueq_codecs.groups import levels_of

Document = dict[str, Any]
Wanted = tuple[str, int]
"""A forecast: of which topic, and how far ahead, seconds."""

_HOUR_MS: Final = 3_600_000
_NOTHING: Final = TopicCounts()


@dataclass(frozen=True, slots=True)
class Ahead:
    """A forecast.

    Attributes:
        counts: (Unix ms of a second, messages due in it); of hours instead of seconds, beyond an hour.
        exact_until_ms: up to when seconds are exact, Unix ms; None: all of them.
        more: by second, how many more messages were counted than its brokers have estimated.
    """

    counts: list[tuple[int, int]] = field(default_factory=list)
    exact_until_ms: int | None = None
    more: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class TopicSight:
    """A topic as one look has found it.

    Attributes:
        info: its settings.
        scheduled, ready, leased, dead: messages, over the partitions that are led.
        leaderless: partitions that nobody leads.
        behind: partitions with fewer in-sync replicas than replicas.
        next_minute: messages due within a minute.
        sessions: consumers.
        credit, held: messages that they may have, and have.
        partitions: documents of the partitions that some broker told of, while somebody looks at the topic.
        consumers: documents of the sessions of its consumers, likewise.
        paused_groups: groups that are paused and have messages, as far as it matters and is known: not where there are
            very many groups. A group below a paused one counts with that.
        in_paused: messages of these, due or not.
    """

    info: TopicInfo
    scheduled: int = 0
    ready: int = 0
    leased: int = 0
    dead: int = 0
    leaderless: int = 0
    behind: int = 0
    next_minute: int = 0
    sessions: int = 0
    credit: int = 0
    held: int = 0
    partitions: list[Document] = field(default_factory=list)
    consumers: list[Document] = field(default_factory=list)
    paused_groups: list[str] = field(default_factory=list)
    in_paused: int = 0

    @property
    def free(self) -> int:
        """Messages that no paused group holds, due or not, without dead ones."""
        return max(self.scheduled + self.ready + self.leased - self.in_paused, 0)

    @property
    def total(self) -> int:
        """Messages that it holds."""
        return self.scheduled + self.ready + self.leased + self.dead

    @property
    def quiet(self) -> bool:
        """Whether there is nothing to say of it."""
        return not (self.total or self.leaderless or self.behind or self.info.paused)


@dataclass(slots=True)
class Sight:
    """The mesh as one look has found it.

    Attributes:
        number: of the look, from 1.
        at_ms: mesh time, Unix ms.
        took_s: how long it took.
        waited: a broker that is registered did not answer: most of that time was waiting.
        brokers: documents by id, as the brokers tell them.
        replicas: by broker, as the leaders tell of them.
        topics: by name, sorted.
        next_minute: messages due in each second of the next minute.
        disabled: (topic, name, reason) of endpoints that are disabled.
        failing: by topic, (name, reason) of endpoints whose receivers fail this gateway.
        statistics: the brokers' counts of the present hour.
        forecasts: by topic and seconds ahead, where they were asked for.
        fault: why nothing was seen; the rest is then of the look before.
        seen_ms: when something was seen last, Unix ms; 0: never.
        unseen: topics that did not fit into the brokers' answers.
    """

    number: int
    at_ms: int
    took_s: float = 0.0
    waited: bool = False
    brokers: dict[str, Document] = field(default_factory=dict)
    replicas: dict[str, ReplicaCounts] = field(default_factory=dict)
    topics: dict[str, TopicSight] = field(default_factory=dict)
    next_minute: list[int] = field(default_factory=list)
    disabled: list[tuple[str, str, str]] = field(default_factory=list)
    failing: dict[str, tuple[str, str]] = field(default_factory=dict)
    statistics: list[StatisticsRow] = field(default_factory=list)
    forecasts: dict[Wanted, Ahead] = field(default_factory=dict)
    fault: str = ""
    seen_ms: int = 0
    unseen: int = 0


async def look(
    service: Service,
    number: int,
    catalogue: Catalogue,
    watched: Collection[str],
    wanted: Collection[Wanted],
    patience_s: float,
) -> Sight:
    """Look at the mesh: two questions to each broker, and one more for each topic and each forecast that is wanted.

    And one for each of a few fair topics that have messages due, about their groups.

    Args:
        service: the gateway's access to it.
        number: of the look.
        catalogue: of the topics.
        watched: topics whose partitions and consumers are wanted.
        wanted: forecasts.
        patience_s: brokers that have not answered by three quarters of it count as away.

    Raises:
        DueqError: no broker answered.
    """
    begun = time.monotonic()
    run = service.client.connection.run
    at_ms = await service.now_us() // 1000
    hour = at_ms // _HOUR_MS
    # Just after the hour, the last counts of the one before are still wanted.
    first = hour - 1 if at_ms % _HOUR_MS < 2 * limits.DASHBOARD_PAUSE_MS_MAX else hour
    found, part = await asyncio.gather(
        run(summaries.summary(), patience_s), run(calls.statistics(first), patience_s)
    )
    await catalogue.refresh(service.client, found.catalogues, patience_s)
    missing = {name: {"alive": False, "endpoint": ""} for name in sorted(catalogue.brokers)}
    sight = Sight(
        number, at_ms, brokers=missing | found.brokers, replicas=found.replicas, disabled=found.disabled
    )
    sight.next_minute = found.next_minute
    sight.waited = not all(broker["alive"] for broker in found.brokers.values())
    sight.statistics, sight.seen_ms, sight.unseen = part.rows, at_ms, found.left_out
    sight.topics = {info.name: _topic(pauses.as_of(at_ms, info), found) for info in catalogue.infos}
    known = [name for name in watched if name in sight.topics]
    details = asyncio.gather(
        *(_look_into(sight.topics[name], service, patience_s) for name in known),
        *(_look_for_pauses(topic, service, patience_s) for topic in _held_up(sight.topics.values())),
    )
    sight.forecasts = await _forecasts(service, sight, wanted, patience_s)
    await details
    sight.took_s = time.monotonic() - begun
    return sight


def _topic(info: TopicInfo, found: MeshSummary) -> TopicSight:
    counts = found.topics.get(info.name, _NOTHING)
    # Of a topic that did not fit into an answer nothing is known.
    leaderless = 0 if found.left_out else max(info.partitions - counts.served, 0)
    return TopicSight(
        info, counts.scheduled, counts.ready, counts.leased, counts.dead, leaderless, counts.behind,
        counts.next_minute, counts.consumers, counts.credit, counts.held,
    )  # fmt: skip


async def _look_into(topic: TopicSight, service: Service, patience_s: float) -> None:
    """Add what only the page about a topic shows."""
    name = topic.info.name
    with suppress(DueqError):  # it was deleted meanwhile
        status = await service.client.connection.run(calls.status(name), patience_s)
        topic.partitions = status["topics"].get(name, {}).get("partitions", [])
        topic.consumers = status["consumers"]
        topic.sessions = len({each["consumer"] for each in topic.consumers})


def _held_up(topics: Collection[TopicSight]) -> list[TopicSight]:
    """Return the topics of which it matters whether groups are paused, those only that most is due of."""
    waiting = (
        topic
        for topic in topics
        if topic.info.kind == "fair" and not topic.info.paused and (topic.ready or topic.next_minute)
    )
    return nsmallest(limits.DASHBOARD_FORECASTS_MAX, waiting, lambda topic: (-topic.ready, topic.info.name))


async def _look_for_pauses(topic: TopicSight, service: Service, patience_s: float) -> None:
    """Add which groups are paused, as far as one page of groups tells it."""
    with suppress(DueqError):  # it was deleted meanwhile, or its leader is changing
        page = await service.client.connection.run(groups.page(topic.info.name, ""), patience_s)
        paused = {each.name for each in page.groups if each.paused}
        held = Counter[str]()
        for each in page.groups:
            above = next((level for level in levels_of(each.name) if level in paused), None)
            if above is not None and each.messages:
                held[above] += each.messages
        topic.paused_groups, topic.in_paused = sorted(held), held.total()


def fullest(topics: Collection[TopicSight]) -> list[TopicSight]:
    """Return the topics with most messages ahead, those only that get a forecast of their own."""
    waiting = (topic for topic in topics if topic.scheduled)
    return nsmallest(
        limits.DASHBOARD_FORECASTS_MAX, waiting, lambda topic: (-topic.scheduled, topic.info.name)
    )


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

"""The data of each page, as JSON: made of one look, for every page that shows the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from dueq import Backoff, limits
from dueq.client.summaries import ReplicaCounts
from dueq.gateway import instants
from dueq.gateway.dashboard import alarms
from dueq.gateway.dashboard.alarms import Alarm
from dueq.gateway.dashboard.snapshot import Ahead, Sight, TopicSight, fullest
from dueq.gateway.dashboard.state import State

Document = dict[str, Any]

_SORTS: Final = ("trouble", "name", "scheduled", "ready", "leased", "dead")
SORTS: Final = frozenset(_SORTS)


@dataclass(frozen=True, slots=True)
class View:
    """The choice of what one page shows.

    Attributes:
        topic: of which it is about; "": the mesh.
        search: part of the names of the topics that it lists.
        sort: their order.
        skip: how many of them to leave out.
        ahead_s: how far ahead a topic's forecast goes.
    """

    topic: str = ""
    search: str = ""
    sort: str = "trouble"
    skip: int = 0
    ahead_s: int = limits.DASHBOARD_AHEAD_S

    def document(self, state: State, acts: Iterable[Document]) -> Document:
        """Return what the page shows."""
        sight = state.sight
        head = {
            "number": sight.number,
            "at": sight.at_ms,
            "seen": sight.seen_ms,
            "fault": sight.fault,
        }
        return head | (_topic(self, state) if self.topic else _mesh(self, state, acts))


def _mesh(view: View, state: State, acts: Iterable[Document]) -> Document:
    sight = state.sight
    topics = sight.topics.values()
    found = _listed(view, state)
    return {
        "alarms": _alarms(*alarms.shown(state.alarms)),
        "totals": {
            "topics": len(sight.topics),
            "partitions": sum(topic.info.partitions for topic in topics),
            "brokers": len(sight.brokers),
            "alive": sum(bool(broker["alive"]) for broker in sight.brokers.values()),
            "leaderless": sum(topic.leaderless for topic in topics),
            "consumers": sum(topic.sessions for topic in topics),
            **_counts(topics),
        },
        "chart": _chart(state, None, _ahead(sight)),
        "exact": _exact_until(sight),
        "partly": len([topic for topic in topics if topic.scheduled]) > len(fullest(topics)),
        "lateness": _lateness(state, None),
        "brokers": [_broker(broker_id, sight) for broker_id in sorted(sight.brokers)],
        "topics": [_row(topic) for topic in found[view.skip : view.skip + limits.DASHBOARD_ROWS_MAX]],
        "found": len(found),
        "acts": list(acts)[::-1],
    }


def _topic(view: View, state: State) -> Document:
    sight, name = state.sight, view.topic
    topic = sight.topics.get(name)
    document: Document = {"alarms": _alarms(*alarms.shown(state.alarms, name)), "topic": None}
    if topic is None:
        return document
    info = topic.info
    until = info.paused_until
    ahead = sight.forecasts.get((name, view.ahead_s), Ahead())
    return document | {
        "topic": {
            **_row(topic),
            "replicas": info.replicas,
            "min_isr": info.min_isr,
            "payload_bytes_max": info.payload_bytes_max,
            "horizon_s": info.horizon.total_seconds() if info.horizon is not None else None,
            "rate": info.rate,
            "burst": info.burst,
            "max_attempts": info.max_attempts,
            "backoff": _backoff(info.backoff),
            "expired": info.expired,
            "dead_retention_s": info.dead_retention.total_seconds(),
            "keys": info.keys,
            "remember_s": info.remember.total_seconds(),
            "labels": dict(info.labels),
            "paused_until": instants.ms_of(until) if until is not None else None,
            "settings_version": info.settings_version,
        },
        "ahead": view.ahead_s,
        "chart": _chart(state, name, ahead.counts),
        "exact": ahead.exact_until_ms,
        "lateness": _lateness(state, name),
        "parts": [_partition(each) for each in _worst_first(topic)[: limits.DASHBOARD_ROWS_MAX]],
        "consumers": _consumers(topic),
    }


def _backoff(found: Backoff | None) -> Document | None:
    """As the native API takes it."""
    if found is None:
        return None
    document = found.document()
    return {
        "first": document["first_ms"] / 1000,
        "factor": found.factor,
        "longest": document["longest_ms"] / 1000,
        "jitter": found.jitter,
        "doublings": found.doublings,
    }


def _listed(view: View, state: State) -> list[TopicSight]:
    """The topics that are wanted, in the wanted order."""
    needle = view.search.casefold()
    found = [topic for name, topic in state.sight.topics.items() if needle in name.casefold()]
    if view.sort == "trouble":
        level = {
            alarm.topic: number for number, alarm in reversed(list(enumerate(state.alarms))) if alarm.topic
        }
        last = len(state.alarms)
        found.sort(key=lambda topic: (level.get(topic.info.name, last), -topic.total, topic.info.name))
    elif view.sort in ("scheduled", "ready", "leased", "dead"):
        found.sort(key=lambda topic: (-getattr(topic, view.sort), topic.info.name))
    return found


def _row(topic: TopicSight) -> Document:
    info = topic.info
    return {
        "name": info.name,
        "kind": info.kind,
        "partitions": info.partitions,
        "paused": info.paused,
        "leaderless": topic.leaderless,
        "behind": topic.behind,
        "consumers": topic.sessions,
        "next_minute": topic.next_minute,
        **_counts([topic]),
    }


def _counts(topics: Iterable[TopicSight]) -> Document:
    scheduled = ready = leased = dead = 0
    for topic in topics:
        scheduled += topic.scheduled
        ready += topic.ready
        leased += topic.leased
        dead += topic.dead
    return {"scheduled": scheduled, "ready": ready, "leased": leased, "dead": dead}


def _chart(state: State, topic: str | None, ahead: list[tuple[int, int]]) -> Document:
    return {
        "since": state.history.since_ms,
        "delivered": {str(second): count for second, count in state.history.seconds(topic)},
        "due": {str(second // 1000): count for second, count in ahead},
    }


def _ahead(sight: Sight) -> list[tuple[int, int]]:
    """Count the messages due in the whole mesh: of all topics in the next minute, later those of the fullest ones."""
    begin = sight.at_ms // 1000
    totals: Counter[int] = Counter()
    for place, count in enumerate(sight.next_minute):
        totals[begin + place] += count
    for name in (topic.info.name for topic in fullest(sight.topics.values())):
        ahead = sight.forecasts.get((name, limits.DASHBOARD_AHEAD_S), Ahead())
        for second_ms, count in ahead.counts:
            if second_ms // 1000 >= begin + 60:
                totals[second_ms // 1000] += count
        for second_ms, more in ahead.more.items():
            if begin <= second_ms // 1000 < begin + 60:
                totals[second_ms // 1000] += more
    return [(second * 1000, count) for second, count in sorted(totals.items()) if count > 0]


def _exact_until(sight: Sight) -> int | None:
    """Up to when the mesh's seconds are exact; None: as far as they go."""
    found = (
        sight.forecasts.get((topic.info.name, limits.DASHBOARD_AHEAD_S))
        for topic in fullest(sight.topics.values())
    )
    ends = [ahead.exact_until_ms for ahead in found if ahead is not None and ahead.exact_until_ms is not None]
    return min(ends, default=None)


def _lateness(state: State, topic: str | None) -> Document:
    found = state.history.lateness(topic)
    return {"count": found.count, "half": found.half_ms, "most": found.most_ms, "worst": found.worst_ms}


def _alarms(found: list[Alarm], more: int, serious: int) -> Document:
    return {
        "shown": [
            {
                "key": alarm.key,
                "level": alarm.level,
                "what": alarm.what,
                "next": alarm.next,
                "topic": alarm.topic,
                "dead": alarm.dead,
                "since": alarm.since_ms,
                "until": alarm.until_ms,
            }
            for alarm in found
        ],
        "more": more,
        "serious": serious,
    }


def _broker(broker_id: str, sight: Sight) -> Document:
    broker = sight.brokers[broker_id]
    clock = broker.get("clock") or {}
    return {
        "id": broker_id,
        "alive": bool(broker["alive"]),
        "endpoint": broker.get("endpoint", ""),
        "leads": broker.get("leaderships"),
        "holds": broker.get("held"),
        "behind": sight.replicas.get(broker_id, ReplicaCounts()).behind,
        "offset_ms": clock.get("offset_ms"),
        "uptime_s": broker.get("uptime_s"),
        "level": broker.get("feature_level"),
    }


def _worst_first(topic: TopicSight) -> list[Document]:
    return sorted(
        topic.partitions,
        key=lambda each: (
            bool(each.get("serving")),
            len(each.get("isr", ())) >= len(each.get("replicas", ())),
            int(each.get("index", 0)),
        ),
    )


def _partition(told: Document) -> Document:
    return {
        "index": told.get("index"),
        "leader": told.get("leader") or None,
        "serving": bool(told.get("serving")),
        "replicas": told.get("replicas", []),
        "isr": told.get("isr", []),
        "lag": max((told.get("lag") or {}).values(), default=None)
        if isinstance(told.get("lag"), dict)
        else None,
        **{state: told.get(state, 0) for state in ("scheduled", "ready", "leased", "dead")},
    }


def _consumers(topic: TopicSight) -> list[Document]:
    """The sessions of each consumer with all leaders, put together; the busiest first."""
    found: dict[str, Document] = {}
    for session in topic.consumers:
        each = found.setdefault(
            session["consumer"],
            {"consumer": session["consumer"], "brokers": [], "credit": 0, "leased": 0, "heard_ms": 0},
        )
        each["brokers"].append(session["broker"])
        each["credit"] += int(session.get("credit", 0))
        each["leased"] += int(session.get("leased", 0))
        each["heard_ms"] = max(each["heard_ms"], int(session.get("heard_ms", 0)))
    return sorted(found.values(), key=lambda each: (-each["leased"], each["consumer"]))[
        : limits.DASHBOARD_ROWS_MAX
    ]

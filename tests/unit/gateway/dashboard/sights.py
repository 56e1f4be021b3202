"""Looks at meshes that are made up."""

from __future__ import annotations

from typing import Any

from dueq import PartitionInfo, TopicInfo
from dueq.client.summaries import ReplicaCounts
from dueq.gateway.dashboard.snapshot import Sight, TopicSight


def broker(**told: Any) -> dict[str, Any]:
    return {"alive": True, "endpoint": "tcp://b:1", "feature_level": 2, **told}


def partition(isr: str = "b1 b2 b3", serving: bool = True, **told: Any) -> dict[str, Any]:
    return {"serving": serving, "isr": isr.split(), "replicas": ["b1", "b2", "b3"], "index": 0, **told}


def topic(name: str = "mail", **seen: Any) -> TopicSight:
    known = {key: seen.pop(key) for key in ("paused", "rate") if key in seen}
    parts, sessions = seen.get("partitions", [partition()]), seen.get("consumers", [])
    placement = tuple(
        PartitionInfo(place, place, "", 1, each["serving"], tuple(each["replicas"]))
        for place, each in enumerate(parts)
    )
    info = TopicInfo(name, "timeline", 1, 3, 2, 1 << 20, None, placement, **known)
    found = TopicSight(info, **{"partitions": parts, **seen})
    found.sessions = len({each["consumer"] for each in sessions})
    found.credit, found.held = (
        sum(each["credit"] for each in sessions),
        sum(each["leased"] for each in sessions),
    )
    return found


def sight(*topics: TopicSight, at_ms: int = 0, **brokers: dict[str, Any]) -> Sight:
    known = {name: broker() for name in ("b1", "b2", "b3")} | brokers
    replicas = {
        name: ReplicaCounts(
            sum(name in each["replicas"] for each in led),
            sum(len(each["isr"]) <= 2 for each in led if name in each["replicas"]),
            sum(name not in each["isr"] for each in led),
        )
        for led in [[each for one in topics for each in one.partitions if each["serving"]]]
        for name in known
    }
    return Sight(
        1, at_ms, brokers=known, replicas=replicas, topics={each.info.name: each for each in topics},
        seen_ms=at_ms,
    )  # fmt: skip

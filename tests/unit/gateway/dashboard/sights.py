"""Looks at meshes that are made up."""

from __future__ import annotations

from typing import Any

from dueq import TopicInfo
from dueq.gateway.dashboard.snapshot import Sight, TopicSight


def broker(**told: Any) -> dict[str, Any]:
    return {"alive": True, "endpoint": "tcp://b:1", "feature_level": 2, **told}


def partition(isr: str = "b1 b2 b3", serving: bool = True, **told: Any) -> dict[str, Any]:
    return {"serving": serving, "isr": isr.split(), "replicas": ["b1", "b2", "b3"], "index": 0, **told}


def topic(name: str = "mail", **seen: Any) -> TopicSight:
    known = {key: seen.pop(key) for key in ("paused", "rate") if key in seen}
    info = TopicInfo(name, "timeline", 1, 3, 2, 1 << 20, **known)
    return TopicSight(info, **{"partitions": [partition()], **seen})


def sight(*topics: TopicSight, at_ms: int = 0, **brokers: dict[str, Any]) -> Sight:
    known = {name: broker() for name in ("b1", "b2", "b3")} | brokers
    return Sight(1, at_ms, brokers=known, topics={each.info.name: each for each in topics}, seen_ms=at_ms)

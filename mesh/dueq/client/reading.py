"""Merges the answers of several brokers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from dueq.client import times
from dueq.client.backoff import backoff_of
from dueq.client.core.asking.inspecting import Inspection
from dueq.client.merging import merged_status
from dueq.client.topics import PartitionInfo, TopicInfo
from dueq_codecs import messages
from dueq_codecs.topic_settings import AS_CREATED, decode_settings

Document = dict[str, Any]
Mark = tuple[int, int]
"""Of a broker's topics and settings: another one whenever they are others."""


def topic_info(info: messages.TopicInfo) -> TopicInfo:
    """Return a topic as callers see it."""
    placement = tuple(
        PartitionInfo(p.uid, index, p.leader, p.epoch, p.serving, tuple(p.replicas))
        for index, p in enumerate(info.partitions)
    )
    horizon = timedelta(milliseconds=info.horizon_ms) if info.horizon_ms else None
    settings = decode_settings(info.settings) if info.settings else AS_CREATED
    until_ms = settings.paused_until_ms
    return TopicInfo(
        info.name,
        info.kind,
        len(placement),
        info.replicas,
        info.min_isr,
        info.payload_bytes_max,
        horizon,
        placement,
        paused=settings.paused,
        paused_until=times.moment(until_ms) if until_ms else None,
        settings_version=settings.version,
        home_partitions=info.home_partitions or len(placement),
        rate=settings.rate,
        burst=settings.burst,
        max_attempts=settings.max_attempts,
        backoff=backoff_of(settings.backoff),
        expired=settings.expired,
        dead_retention=timedelta(milliseconds=settings.dead_retention_ms),
        labels=dict(settings.labels),
        keys=settings.keys,
        remember=timedelta(milliseconds=settings.remember_ms),
    )


def topic_infos(reply: messages.MetadataReply) -> list[TopicInfo]:
    """Return all topics, by name."""
    return [topic_info(info) for info in sorted(reply.topics, key=lambda info: info.name)]


def described(found: Inspection) -> TopicInfo:
    """Return a topic with the counts of its leaders."""
    info = topic_info(found.metadata.topics[0])
    views = _newest(found)
    placement = tuple(_described(partition, views.get(partition.uid)) for partition in info.placement)
    return replace(
        info,
        placement=placement,
        scheduled=_sum(partition.scheduled for partition in placement),
        ready=_sum(partition.ready for partition in placement),
        leased=_sum(partition.leased for partition in placement),
        dead=_sum(partition.dead for partition in placement),
    )


def forecast(found: Inspection) -> list[tuple[int, int]]:
    """Return (Unix ms of a second, messages due in it), ascending, over all partitions; empty seconds left out."""
    totals: Counter[int] = Counter()
    summed_up = [_parsed(text) for text in found.documents.values()]
    for view in (*_newest(found).values(), *summed_up):
        for second, number in view.get("counts", ()):
            totals[int(second)] += int(number)
    return sorted((second, number) for second, number in totals.items() if number)


def known_until(found: Inspection) -> int | None:
    """Return up to when all seconds of a forecast are exact, Unix ms; None: all of them."""
    ends = [view.get("known_until") for view in _newest(found).values()]
    return min((int(end) for end in ends if end is not None), default=None)


def hours(found: Inspection) -> list[tuple[int, int]]:
    """Return (Unix ms of an hour, messages that wait until then), ascending, over all partitions that are led."""
    totals: Counter[int] = Counter()
    for text in found.documents.values():
        for hour, number in _parsed(text).get("hours", ()):
            totals[int(hour)] += int(number)
    return sorted(totals.items())


def marks(found: Inspection) -> dict[str, Mark]:
    """Return (life of the broker, number of its catalogue) by broker."""
    return {
        broker_id: (document["incarnation"], document["catalogue"])
        for broker_id, document in ((name, _parsed(text)) for name, text in found.documents.items())
    }


def status(found: Inspection) -> Document:
    """Return the merged status of all brokers (see `merging.merged_status`)."""
    documents = {broker_id: _parsed(text) for broker_id, text in found.documents.items()}
    return merged_status(found.endpoints, documents)


def _described(partition: PartitionInfo, view: Document | None) -> PartitionInfo:
    if view is None:
        return partition
    return replace(
        partition,
        leader=str(view.get("leader") or partition.leader),
        epoch=max(int(view.get("epoch", 0)), partition.epoch),
        isr=tuple(view.get("isr", ())),
        scheduled=view.get("scheduled"),
        ready=view.get("ready"),
        leased=view.get("leased"),
        dead=view.get("dead"),
        settings_version=view.get("settings_version"),
    )


def _newest(found: Inspection) -> dict[int, Document]:
    """Each partition as its leader sees it, else as the replica that has applied most of its log."""
    leaders = {p.uid: p.leader for topic in found.metadata.topics for p in topic.partitions}
    best: dict[int, tuple[tuple[bool, int, int], Document]] = {}
    for broker_id, text in sorted(found.documents.items()):
        for view in _parsed(text).get("partitions", ()):
            uid = int(view["uid"])
            leads = broker_id == (view.get("leader") or leaders.get(uid))
            rank = (leads, int(view.get("epoch", 0)), int(view.get("sequence", 0)))
            if uid in leaders and (uid not in best or rank > best[uid][0]):
                best[uid] = (rank, view)
    return {uid: view for uid, (_, view) in best.items()}


def _parsed(text: str | None) -> Document:
    document = json.loads(text) if text else {}
    return document if isinstance(document, dict) else {}


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None

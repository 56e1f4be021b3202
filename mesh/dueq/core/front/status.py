"""Documents about a broker for people and programs: status, counts, forecasts, gauges.

Answered from the applied state of the partitions led here (status: of all replicas held here). So it may be stale,
and each part carries epoch and sequence. docs/reference/inspect.md has the form of the JSON documents.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from dueq import limits
from dueq.core.delivery.dispatch import TopicDispatcher
from dueq.core.front import endpoint_documents, forecast_documents, group_documents, recurrence_documents
from dueq.core.front.deletions import Deletions
from dueq.core.front.topics import Topics
from dueq.core.ports.membership import CoordinatorState
from dueq.core.turn.context import Context
from dueq.core.turn.mesh_time import MeshTime
from dueq.core.turn.statistics import HOUR_MS
from dueq.instant import Now
from dueq_codecs.messages import InspectRequest

if TYPE_CHECKING:
    from dueq.core.partition.partition import Partition

GAUGES_AT_ONCE = 500
"""Partitions that one call of `gauges` looks at, a few milliseconds: of ten thousand each is seen every 20 calls."""


class Status:
    """Reads, never changes."""

    def __init__(
        self,
        ctx: Context,
        clock: MeshTime,
        topics: Topics,
        partitions: dict[int, Partition],
        dispatchers: dict[str, TopicDispatcher],
        deletions: Deletions,
        now: Now,
    ) -> None:
        self._ctx, self._clock, self._topics = ctx, clock, topics
        self._partitions, self._dispatchers = partitions, dispatchers
        self._deletions = deletions
        self._started_us = now.mono_us
        self._gauged: dict[int, dict[str, Any]] = {}
        self._ungauged: list[int] = []

    def document(self, request: InspectRequest, now: Now) -> str | None:
        """Return the JSON document that was asked for, other than "status"; None when there is none of that name."""
        if request.what == "statistics":
            return json.dumps(self._ctx.metrics.statistics.document(request.seconds, request.topic))
        topic = self._topics.by_name.get(request.topic)
        held = [self._partitions.get(part.uid) for part in topic.partitions] if topic is not None else []
        led = [partition for partition in held if partition is not None and partition.replica.serving]
        if request.what == "describe":
            return json.dumps({"partitions": [partition.describe(now) for partition in led]})
        if request.what == "forecast":
            from_ms = self._clock.mesh_now_us(now) // 1000
            return json.dumps(forecast_documents.document(led, from_ms, request.seconds))
        if request.what == "hours":
            return json.dumps({"hours": _hours(led)})
        if request.what == "jobs" or request.what.startswith("job "):
            return json.dumps(_jobs(led, request.what[4:]))
        if request.what.startswith("pass "):
            return json.dumps({"partitions": [_pass(partition, request.what[5:]) for partition in led]})
        if request.what == "catalogue":
            told = {"incarnation": self._ctx.settings.incarnation, "catalogue": self._topics.version}
            return json.dumps(told)
        what, _, name = request.what.partition(" ")
        if what == "endpoints":
            return json.dumps(endpoint_documents.page(self._topics.by_name, name))
        if what == "groups":
            return json.dumps(group_documents.page(led, name))
        if what in ("recurrence", "recurrences"):
            make = recurrence_documents.one if what == "recurrence" else recurrence_documents.page
            return json.dumps(make(led, name, self._clock.mesh_now_us(now) // 1000))
        return None

    def degraded(self) -> str:
        """ "zookeeper" while the coordinator is away, else ""."""
        return "" if self._ctx.coordinator is CoordinatorState.CONNECTED else "zookeeper"

    def head(self, now: Now, named: str = "") -> dict[str, Any]:
        """Everything about this broker but its `partitions` (see `Overviews`); of one topic, if one is named."""
        return {
            **self.broker(now),
            "topics": {
                name: {"kind": topic.kind, "replicas": topic.replicas, "min_isr": topic.min_isr}
                for name, topic in sorted(self._topics.by_name.items())
                if named in ("", name)
            },
            "consumers": [
                {
                    "topic": name,
                    "consumer": session.consumer_id,
                    "broker": self._ctx.settings.broker_id,
                    "attached": session.attached,
                    "credit": session.credit,
                    "leased": session.leases,
                    "leased_bytes": session.leased_bytes,
                    "heard_ms": session.heard_ms_ago,
                }
                for name, dispatcher in self._dispatchers.items()
                if named in ("", name)
                for session in dispatcher.sessions(now)
            ],
        }

    def uids_of(self, topic: str) -> list[int]:
        """The partitions of a topic that are held here."""
        found = self._topics.by_name.get(topic)
        return (
            [each.uid for each in found.partitions if each.uid in self._partitions]
            if found is not None
            else []
        )

    def broker(self, now: Now) -> dict[str, Any]:
        """Return the status of this broker, and the addresses of the others."""
        settings = self._ctx.settings
        return {
            "broker": {
                "id": settings.broker_id,
                "incarnation": settings.incarnation,
                "feature_level": settings.feature_level,
                "endpoint": settings.endpoint,
                "metrics": settings.metrics,
                "store_id": settings.store_id,
                "cluster_id": settings.cluster_id,
                "uptime_s": (now.mono_us - self._started_us) // 1_000_000,
                "degraded": self.degraded(),
                "inserts_refused": self._ctx.inserts_refused,
                "orphans": {str(uid): topic for uid, topic in sorted(self._deletions.orphans.items())},
                "unopened": {str(uid): why for uid, why in sorted(self._ctx.unopened.items())},
                "leaderships": sum(partition.replica.is_leader for partition in self._partitions.values()),
                "clock": self._clock_document(now),
            },
            "brokers": {
                broker_id: {
                    "endpoint": seen.endpoint,
                    "metrics": seen.metrics,
                    "incarnation": seen.incarnation,
                    "feature_level": seen.feature_level,
                }
                for broker_id, seen in sorted(self._topics.registrations.items())
            },
        }

    def _clock_document(self, now: Now) -> dict[str, Any]:
        offsets = {peer: self._clock.offset_us(peer) for peer in self._ctx.peers}
        return {
            "mesh_offset_ms": (self._clock.mesh_now_us(now) - now.wall_us) / 1000,
            "hold": self._clock.hold,
            "alarm": self._clock.alarm(now),
            "peers": {
                broker_id: {
                    "offset_ms": offset_us / 1000 if (offset_us := offsets[broker_id]) is not None else None,
                    "heard_ms": peer.silent_for_us(now) // 1000,
                    "registered": peer.registered,
                }
                for broker_id, peer in self._ctx.peers.items()
            },
        }

    def partition(self, partition: Partition, now: Now) -> dict[str, Any]:
        """One replica; `due_next_minute` only where it leads and something is due then."""
        replica = partition.replica
        document = partition.describe(now)
        document.update(
            topic=partition.topic.name,
            role=replica.role,
            serving=replica.serving,
            replicas=list(partition.replicas),
            min_isr=partition.topic.min_isr,
            end=replica.end,
            last_epoch=replica.last_epoch,
            commit=replica.commit,
            broken=replica.trouble,
        )
        lag = replica.lag()
        if lag is not None:
            document["lag"] = lag
            from_ms = self._clock.mesh_now_us(now) // 1000
            counts = [0] * 60
            for second_ms, count in partition.contents.forecast(from_ms, 60):
                counts[min(max((second_ms - from_ms) // 1000, 0), 59)] += count
            if any(counts):
                document["due_next_minute"] = counts
        return document

    def gauges(self, now: Now) -> dict[str, Any]:
        """The gauges of the metrics port; with many partitions, some are as they were a while ago."""
        self._gauge_some(now)
        return {
            "partitions": list(self._gauged.values()),
            "clock_offset_us": {
                peer: offset
                for peer in self._ctx.peers
                if (offset := self._clock.offset_us(peer)) is not None
            },
            "leaderships": sum(partition.replica.is_leader for partition in self._partitions.values()),
            "degraded": self.degraded(),
            "elections": self._ctx.metrics.elections,
            "orphans": dict(self._deletions.orphans),
        }

    def _gauge_some(self, now: Now) -> None:
        if not self._ungauged:
            self._ungauged = list(reversed(self._partitions))
            for uid in self._gauged.keys() - self._partitions.keys():
                del self._gauged[uid]
        some, self._ungauged = self._ungauged[-GAUGES_AT_ONCE:], self._ungauged[:-GAUGES_AT_ONCE]
        for uid in reversed(some):
            partition = self._partitions.get(uid)
            if partition is not None:
                self._gauged[uid] = self._gauge(partition, now)

    @staticmethod
    def _gauge(partition: Partition, now: Now) -> dict[str, Any]:
        return {
            **partition.describe(now),
            "topic": partition.topic.name,
            "role": partition.replica.role,
            "end": partition.replica.end,
            "commit": partition.replica.commit,
        }


def _hours(led: list[Partition]) -> list[tuple[int, int]]:
    """Sum up the messages that wait in the partitions led here, by hour: one sum over all keeps the answer short."""
    totals: Counter[int] = Counter()
    for partition in led:
        totals.update(partition.contents.waiting_by_hour())
    return [(hour * HOUR_MS, count) for hour, count in sorted(totals.items())]


def _pass(partition: Partition, name: str) -> dict[str, Any]:
    """How far a pass is in a partition led here; state "unknown": it was not begun there, or ended long ago."""
    found = partition.contents.pass_named(name)
    return {
        "uid": partition.uid,
        "epoch": partition.epoch,
        "sequence": partition.applied,
        "state": found.state.name.lower() if found is not None else "unknown",
        "done": found.done if found is not None else 0,
        "skipped": found.skipped if found is not None else {},
        "left": partition.left_of_pass(found) if found is not None else 0,
    }


def _jobs(led: list[Partition], named: str) -> dict[str, Any]:
    """The jobs that the partitions led here know, the latest first; only those named, if any are (`KEY,KEY,…`)."""
    room, wanted = limits.JOBS_SHOWN_MAX, set(named.split(",")) if named else None
    partitions = []
    for partition in led:
        known = partition.contents.known_jobs()
        shown = [job for job in known if wanted is None or job.key.hex() in wanted][: max(room, 0)]
        room -= len(shown)
        partitions.append(
            {
                "uid": partition.uid,
                "epoch": partition.epoch,
                "sequence": partition.applied,
                "jobs": [
                    {
                        "job": job.key.hex(),
                        "state": job.state.name.lower(),
                        "until": job.until,
                        "messages": job.messages,
                        "cleared": job.cleared,
                    }
                    for job in shown
                ],
            }
        )
    return {"partitions": partitions}

"""The brokers' summaries, put together: what there is to say of each topic in a few numbers."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dueq.client.calls import Call
from dueq.client.core.asking.inspecting import Inspection
from dueq.client.core.ports import events
from dueq.client.merging import merged_status

Document = dict[str, Any]


@dataclass(slots=True)
class TopicCounts:
    """A topic, over the partitions that are led somewhere.

    Attributes:
        served: partitions that are led.
        behind: of them have fewer in-sync replicas than replicas.
        scheduled, ready, leased, dead: messages.
        next_minute: messages due within a minute.
        consumers: with the leader that knows most of them.
        credit, held: messages that they may have, and have.
    """

    served: int = 0
    behind: int = 0
    scheduled: int = 0
    ready: int = 0
    leased: int = 0
    dead: int = 0
    next_minute: int = 0
    consumers: int = 0
    credit: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """A broker, by what the leaders of its partitions say.

    Attributes:
        held: partitions that have a replica there.
        at_risk: of these have no copy to spare.
        behind: replicas that are not in sync.
    """

    held: int = 0
    at_risk: int = 0
    behind: int = 0


@dataclass(slots=True)
class MeshSummary:
    """The mesh, as the brokers that answered see it.

    Attributes:
        brokers: documents by id, as of a status; with `held`, the partitions that a broker holds.
        catalogues: by broker that answered: another one whenever there are other topics or settings.
        topics: by name.
        replicas: by broker.
        next_minute: messages due in each second of the next minute.
        disabled: (topic, name, reason) of endpoints that are disabled.
        left_out: topics that did not fit into an answer.
    """

    brokers: Document
    catalogues: dict[str, tuple[int, int]] = field(default_factory=dict)
    topics: dict[str, TopicCounts] = field(default_factory=dict)
    replicas: dict[str, ReplicaCounts] = field(default_factory=dict)
    next_minute: list[int] = field(default_factory=lambda: [0] * 60)
    disabled: list[tuple[str, str, str]] = field(default_factory=list)
    left_out: int = 0


def summary() -> Call[MeshSummary]:
    """What every broker says of the topics that it leads."""
    return Call(lambda number, at: events.Inspect(number, at, "summary"), merged)


def merged(found: Inspection) -> MeshSummary:
    """Put the answers together."""
    documents: dict[str, Document] = {name: json.loads(text) for name, text in found.documents.items()}
    made = MeshSummary(merged_status(found.endpoints, documents)["brokers"])
    replicas: dict[str, Counter[int]] = {}
    disabled: set[tuple[str, str, str]] = set()
    for broker_id, document in documents.items():
        made.brokers[broker_id]["held"] = document["held"]
        made.catalogues[broker_id] = (document["broker"]["incarnation"], document["catalogue"])
        made.left_out += document["left_out"]
        made.next_minute = [
            sum(pair) for pair in zip(made.next_minute, document["due_next_minute"], strict=True)
        ]
        disabled.update((topic, name, why) for topic, name, why in document["disabled"])
        for other, counts in document["replicas"].items():
            replicas.setdefault(other, Counter()).update(dict(enumerate(counts)))
        for row in document["topics"]:
            _add(made.topics.setdefault(row[0], TopicCounts()), row[1:])
        for name, consumers, credit, held in document["consumers"]:
            topic = made.topics.setdefault(name, TopicCounts())
            topic.consumers = max(topic.consumers, consumers)
            topic.credit += credit
            topic.held += held
    made.replicas = {name: ReplicaCounts(each[0], each[1], each[2]) for name, each in replicas.items()}
    made.disabled = sorted(disabled)
    return made


def _add(topic: TopicCounts, row: list[Any]) -> None:
    topic.served += row[0]
    if len(row) == 1:
        return
    topic.behind += row[1]
    topic.scheduled += row[2]
    topic.ready += row[3]
    topic.leased += row[4]
    topic.dead += row[5]
    topic.next_minute += row[6]

"""The brokers' counts as callers see them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from dueq.client.core.asking.inspecting import Inspection


@dataclass(frozen=True, slots=True)
class StatisticsRow:
    """One hour of one topic at one broker; add up the brokers for all of the topic.

    Attributes:
        broker: id of the broker that delivered, or took what was scheduled, as a leader.
        topic: name; "*" stands for all beyond the 500 of an hour.
        hour: its beginning, Unix ms.
        delivered: pushes, repeated ones included.
        redelivered: pushes of messages that had been pushed before.
        lateness_bounds_ms: upper bounds of the histogram's buckets, ms, ascending.
        lateness_counts: first pushes by their lateness: one count per bound, then those above every bound.
        scheduled: messages scheduled, by sender (client id in hex): the 100 greatest, the rest as "other".
    """

    broker: str
    topic: str
    hour: int
    delivered: int
    redelivered: int
    lateness_bounds_ms: tuple[float, ...]
    lateness_counts: tuple[int, ...]
    scheduled: dict[str, int]


class StatisticsPart(NamedTuple):
    """Some hours of all brokers, and the hour (since 1970) with which to go on; 0: that was all."""

    rows: list[StatisticsRow]
    following: int


def statistics_part(found: Inspection) -> StatisticsPart:
    """Return what the brokers answered."""
    rows: list[StatisticsRow] = []
    following: list[int] = []
    for broker_id, text in sorted(found.documents.items()):
        document: dict[str, Any] = json.loads(text)
        bounds = tuple(float(bound) for bound in document["bounds_ms"])
        rows += [_row(broker_id, bounds, row) for row in document["rows"]]
        following.append(int(document["next"]))
    return StatisticsPart(rows, min((hour for hour in following if hour), default=0))


def _row(broker_id: str, bounds: tuple[float, ...], row: dict[str, Any]) -> StatisticsRow:
    return StatisticsRow(
        broker_id, row["topic"], row["hour"], row["delivered"], row["redelivered"], bounds,
        tuple(row["lateness"]), row["senders"],
    )  # fmt: skip


class StatisticsWalk:
    """Asks hour after hour until every broker has answered all: parts may overlap, rows are kept once.

    Attributes:
        hour: the hour to ask for, since 1970.
        done: there are no more.
    """

    def __init__(self) -> None:
        self.hour, self.done = 0, False
        self._rows: dict[tuple[int, str, str], StatisticsRow] = {}

    def take(self, part: StatisticsPart) -> None:
        """Take a part."""
        for row in part.rows:
            self._rows[row.hour, row.topic, row.broker] = row
        self.hour, self.done = part.following, not part.following

    def rows(self) -> list[StatisticsRow]:
        """Return all rows by hour, topic and broker."""
        return [self._rows[key] for key in sorted(self._rows)]

"""The statistics of several brokers, put together hour after hour."""

from __future__ import annotations

import json
from typing import Any

from dueq.client.core.asking.inspecting import Inspection
from dueq.client.statistics import StatisticsWalk, statistics_part
from dueq_codecs.messages import Code, MetadataReply

HOUR_MS = 3_600_000


def document(*hours: int, following: int = 0) -> str:
    rows: list[dict[str, Any]] = [
        {"topic": "t", "hour": hour * HOUR_MS, "delivered": 5, "redelivered": 1, "lateness": [3, 1, 0],
         "senders": {"aa": 7}}
        for hour in hours
    ]  # fmt: skip
    return json.dumps({"bounds_ms": [0.25, 0.5], "rows": rows, "next": following})


def found(**documents: str) -> Inspection:
    return Inspection(MetadataReply(1, Code.OK), {}, documents)


def test_parts_are_asked_for_until_every_broker_has_told_all_and_no_row_is_there_twice() -> None:
    walk = StatisticsWalk()
    walk.take(statistics_part(found(b1=document(1, 2, following=3), b2=document(1))))
    assert (walk.hour, walk.done) == (3, False)
    walk.take(statistics_part(found(b1=document(3, 4), b2=document(3, following=4))))
    assert (walk.hour, walk.done) == (4, False)
    walk.take(statistics_part(found(b1=document(4), b2=document(4))))
    assert walk.done
    rows = walk.rows()
    assert [(row.hour // HOUR_MS, row.broker) for row in rows] == [
        (1, "b1"), (1, "b2"), (2, "b1"), (3, "b1"), (3, "b2"), (4, "b1"), (4, "b2"),
    ]  # fmt: skip
    assert (rows[0].delivered, rows[0].redelivered, rows[0].scheduled) == (5, 1, {"aa": 7})
    assert (rows[0].lateness_bounds_ms, rows[0].lateness_counts) == ((0.25, 0.5), (3, 1, 0))


def test_a_mesh_that_has_counted_nothing_has_no_rows() -> None:
    walk = StatisticsWalk()
    walk.take(statistics_part(found(b1=document())))
    assert walk.done
    assert walk.rows() == []

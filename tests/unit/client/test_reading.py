"""Answers of many brokers put together."""

from __future__ import annotations

import json
from typing import Any

from dueq.client import reading
from dueq.client.core.asking.inspecting import Inspection
from dueq_codecs.messages import Code, MetadataReply, PartitionInfo, TopicInfo


def test_a_forecast_adds_up_partitions_and_what_brokers_have_summed_up() -> None:
    placement = tuple(
        PartitionInfo(uid, leader, 1, True, ()) for uid, leader in ((1, "a"), (2, "b"), (3, "b"))
    )
    info = TopicInfo("t", "timeline", 1, 1, 1 << 20, 0, placement)
    told = {"a": {"partitions": [seen(1, [[1_000, 2]])]}, "b": {"partitions": [seen(2, []), seen(3, [])]}}
    told["b"]["counts"] = [[1_000, 5], [2_000, 1]]
    documents = {name: json.dumps(each) for name, each in told.items()}
    found = Inspection(MetadataReply(1, Code.OK, "", (), (info,)), {}, documents)
    assert reading.forecast(found) == [(1_000, 7), (2_000, 1)]


def seen(uid: int, counts: list[Any]) -> dict[str, Any]:
    return {"uid": uid, "epoch": 1, "sequence": 9, "counts": counts, "known_until": None}

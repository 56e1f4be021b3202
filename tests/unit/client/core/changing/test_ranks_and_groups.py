"""Ranks and groups on their way through the SDK: checked, sent to the home of a group, handed out again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dueq import ids
from dueq.client import calls
from dueq.client.batches import batches
from dueq.client.core.ports import events
from dueq.client.core.ports.delivery import Pushed
from dueq.client.core.ports.effects import Completed
from dueq.client.message_ids import MessageIds
from dueq.errors import InvalidRequest
from dueq.limits import REQUEST_ROWS_MAX
from dueq_codecs.groups import home_of_group
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.records import RecordKind
from dueq_codecs.topic_settings import TopicSettings
from tests.unit.client.stage import TOPIC, Stage, of, ok, push, sent


def staged(**given: Any) -> Stage:
    stage = Stage(**given)
    stage.connect()
    stage.learn_topic()
    return stage


def insert(rows: int, **columns: object) -> events.Insert:
    call = calls.schedule_many(TOPIC, [b"%d" % row for row in range(rows)], 10**12, lambda: 0, **columns)  # type: ignore[arg-type]
    event = call.build(7, 1 << 60)
    assert isinstance(event, events.Insert)
    return event


def test_a_single_rank_or_group_is_that_of_all_rows() -> None:
    [request] = sent(staged().step(insert(2, ranks=9, groups="acme")), ChangeRequest)
    assert request.rank.tolist() == [9, 9]
    assert (request.groups, request.group.tolist()) == (("acme",), [0, 0])


def test_ranks_of_zero_and_empty_groups_are_not_sent() -> None:
    """A topic that has neither takes such rows."""
    [request] = sent(staged().step(insert(2, ranks=[0, 0], groups=[None, ""])), ChangeRequest)
    assert (len(request.rank), len(request.group), request.groups) == (0, 0, ())


def test_a_group_decides_the_partition_of_a_message_with_a_key() -> None:
    """Its settings hold nowhere else, and the key is looked for there."""
    settings = TopicSettings(version=1, keys="unique").encode()
    stage = staged(uids=dict.fromkeys(range(1, 6), "a"), settings=settings)
    names = [f"group-{row}" for row in range(20)] + [""] * 20
    event = insert(40, groups=names, keys=[f"key-{row}" for row in range(40)])
    requests = sent(stage.step(event), ChangeRequest)
    homes = {name: 1 + home_of_group(name, 5) for name in names if name}
    assert len({request.uid for request in requests}) == 5
    for request in requests:
        for place in request.group.tolist():
            assert homes.get(request.groups[place], request.uid) == request.uid


def test_requests_with_and_without_them_share_one() -> None:
    stage = staged()
    open_requests = sent(stage.step(insert(1), insert(1)), ChangeRequest)
    stage.step(insert(1, ranks=[3], groups=["b"]), insert(1), insert(2, groups=["a", "b"]))
    (request,) = sent(stage.receive("a", ok(open_requests[0], 9)), ChangeRequest)
    assert request.rank.tolist() == [3, 0, 0, 0]
    assert sorted(request.groups[place] for place in request.group.tolist()) == ["", "a", "b", "b"]


def test_the_first_level_of_a_group_decides_its_partition_and_ids_come_back_in_order() -> None:
    stage = staged(uids={1: "a", 2: "a", 3: "a"})
    names = ["acme.eu", "zoo", "acme.us", "", "zoo.x", "acme"]
    effects = stage.step(insert(len(names), groups=names))
    requests = sent(effects, ChangeRequest)
    for request in requests:
        named = {request.groups[place] for place in request.group.tolist()}
        assert {1 + home_of_group(name, 3) for name in named} == {request.uid}
        assert set(request.groups) == named, "a request names its own groups only"
    assert sorted(request.rows for request in requests) == sorted(
        [
            sum(home_of_group(name, 3) == home for name in names)
            for home in {home_of_group(n, 3) for n in names}
        ]
    )
    done = [of(stage.receive("a", ok(request, 90 + request.uid)), Completed) for request in requests][-1]
    found = [ids.from_text(text) for text in done[0].value.ids()]
    assert [each.uid for each in found] == [1 + home_of_group(name, 3) for name in names]
    assert list(MessageIds.of(done[0].value)) == done[0].value.ids()
    assert len({(each.uid, each.row) for each in found}) == len(names)


def test_each_part_of_a_long_call_names_the_groups_of_its_own_rows() -> None:
    """A request with more names than rows is refused."""
    stage = staged()
    names = ["long.ago"] * REQUEST_ROWS_MAX + ["zoo", "acme", "zoo"]
    requests = sent(stage.step(insert(len(names), groups=names)), ChangeRequest)
    while sum(request.rows for request in requests) < len(names):
        requests += sent(stage.receive("a", ok(requests[-1], len(requests))), ChangeRequest)
    assert [set(request.groups) for request in requests] == [{"long.ago"}, {"zoo", "acme"}]
    shown = [request.groups[place] for request in requests for place in request.group.tolist()]
    assert shown == names


def test_a_change_of_rank_names_messages_and_ranks() -> None:
    name = ids.to_text(ids.MessageId(5_000, 1, 90, 3))
    event = calls.change(TOPIC, [name], ranks=[65_535]).build(7, 1 << 60)
    [request] = sent(staged().step(event), ChangeRequest)
    assert (request.kind, request.target_row.tolist(), request.rank.tolist()) == (
        RecordKind.CHANGE, [3], [65_535],
    )  # fmt: skip


def test_a_delivery_tells_its_rank_group_and_version() -> None:
    message, _ = push("a", 1, 1, [b"x", b"y"])
    plain = Pushed(message)
    assert [(plain.rank(row), plain.group(row), plain.version(row)) for row in (0, 1)] == [(0, "", 50)] * 2
    columns = {
        "rank": np.array([0, 7], np.uint16), "version": np.array([0, 81], np.uint64),
        "group": np.array([1, 0], np.uint16), "groups": ("acme", ""),
    }  # fmt: skip
    wide = Pushed(replace(message, **columns))  # type: ignore[arg-type]
    assert [(wide.rank(row), wide.group(row), wide.version(row)) for row in (0, 1)] == [
        (0, "", 50), (7, "acme", 81),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"ranks": 65_536}, "a rank is between 0 and 65535, not 65536"),
        ({"ranks": [-1]}, "row 0: a rank is between 0 and 65535, not -1"),
        ({"ranks": True}, "a rank is an int, not bool"),
        ({"ranks": "5"}, "a rank is an int, not str: '5'"),
        ({"ranks": 1.5}, "a rank is an int, not float: 1.5"),
        ({"ranks": [1, 2]}, "1 rows need 1 ranks, not 2"),
        ({"groups": [7]}, "row 0: a group is a str, not int: 7"),
        ({"groups": ["a", "b"]}, "1 rows need 1 groups, not 2"),
        ({"groups": "g" * 256}, "a group has at most 255 bytes of UTF-8, not 256"),
        ({"groups": "a..b"}, "the group 'a..b' has an empty level"),
        ({"groups": "."}, "the group '.' has an empty level"),
        ({"groups": ".".join("abcdefghijklmnopq")}, "a group has at most 16 levels, not 17"),
        ({"groups": "\ud800"}, "the group '\\ud800' is not Unicode text"),
    ],
)
def test_what_cannot_be_is_refused_with_its_value_and_the_limit(
    columns: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        insert(1, **columns)
    assert said in str(refused.value)


def test_columns_of_iterators_are_cut_along_with_the_payloads() -> None:
    rows = 1_500
    cut = list(
        batches(iter([b"x"] * rows), 5, None, iter(range(rows)), (f"g{row % 3}" for row in range(rows)))
    )
    assert [rank for batch in cut for rank in batch.ranks] == list(range(rows))
    assert [batch.groups[0] for batch in cut] == ["g0", "g1"]
    with pytest.raises(InvalidRequest, match="row 1: there is a payload, but no group"):
        list(batches(iter([b"x", b"y"]), 5, groups=["only one"]))

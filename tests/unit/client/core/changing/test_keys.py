"""Keys on their way through the SDK: checked, put before payloads, taken off again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dueq import limits
from dueq.client import calls
from dueq.client.calls import Once
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed, Deliver, Failed, Send
from dueq.client.message_ids import MessageIds
from dueq.errors import InvalidRequest, KeyTaken, PartialFailure, PayloadTooLarge
from dueq.ids import from_text
from dueq_codecs.messages import ChangeReply, ChangeRequest, ChunkRequest, Code, ConsumerFrame
from dueq_codecs.meta import with_key
from dueq_codecs.records import Outcome
from dueq_codecs.rules import homes_of_keys, key_hashes
from dueq_codecs.topic_settings import TopicSettings
from tests.unit.client.stage import TOPIC, Stage, of, ok, push, sent


@pytest.fixture
def stage() -> Stage:
    """One broker, one partition, connected, topic known."""
    stage = Stage()
    stage.connect()
    stage.learn_topic()
    return stage


def insert(payloads: list[bytes], keys: list[str | None] | None) -> events.Insert:
    call = calls.schedule_many(TOPIC, payloads, 10**12, lambda: 0, keys=keys)
    event = call.build(7, 1 << 60)
    assert isinstance(event, events.Insert)
    return event


def test_rows_without_a_key_get_a_zero_byte_where_others_have_one(stage: Stage) -> None:
    effects = stage.step(insert([b"a", b"b", b"c"], ["first", None, ""]))
    [request] = sent(effects, ChangeRequest)
    assert request.keyed
    assert request.size.tolist() == [7, 2, 2]
    assert stage.effects[-1].bodies == [b"\x05firsta\0b\0c"]  # type: ignore[union-attr]


@pytest.mark.parametrize("keys", [None, [None, ""]])
def test_where_no_row_has_a_key_nothing_is_added(stage: Stage, keys: list[str | None] | None) -> None:
    [request] = sent(stage.step(insert([b"a", b"b"], keys)), ChangeRequest)
    assert not request.keyed
    assert request.size.tolist() == [1, 1]


def test_requests_with_and_without_keys_are_not_gathered_into_one(stage: Stage) -> None:
    open_requests = sent(stage.step(insert([b"1"], None), insert([b"2"], None)), ChangeRequest)
    waiting = [insert([b"3"], None), insert([b"4"], ["k"]), insert([b"5"], ["k"]), insert([b"6"], None)]
    assert not sent(stage.step(*waiting), ChangeRequest)
    requests = []
    while open_requests:
        more = sent(stage.receive("a", ok(open_requests.pop(0), 9)), ChangeRequest)
        open_requests += more
        requests += more
    assert [(request.keyed, request.rows) for request in requests] == [(False, 1), (True, 2), (False, 1)]


def test_the_rows_of_each_home_are_cut_into_requests_and_get_their_ids_in_the_order_of_the_call() -> None:
    stage = Stage(uids={1: "a", 2: "a"}, settings=TopicSettings(version=1, keys="unique").encode())
    stage.connect()
    stage.learn_topic()
    rows = 5_000
    keys = [f"k{row}" if row % 5 else None for row in range(rows)]
    payloads = [b"%d" % row for row in range(rows)]
    homes = homes_of_keys(key_hashes([(key or "").encode() for key in keys])[0], 2).tolist()
    effects = stage.step(insert(payloads, keys))
    row_of: dict[tuple[int, int, int], int] = {}
    requests = [each for each in effects if isinstance(each, Send)]
    for sequence, request in enumerate(requests, 1):  # it grows
        change = request.message
        assert isinstance(change, ChangeRequest)
        assert change.rows <= limits.REQUEST_ROWS_MAX
        body, start = b"".join(request.bodies), 0
        for at, size in enumerate(change.size.tolist()):
            stored = body[start : start + size]
            start += size
            row = int(stored[1 + stored[0] :])
            assert stored[1 : 1 + stored[0]] == (keys[row] or "").encode()
            assert keys[row] is None or change.uid == 1 + homes[row]
            row_of[change.uid, sequence, at] = row
        effects = stage.receive("a", ok(change, sequence))
        requests += [each for each in effects if isinstance(each, Send)]
    for number in range(
        1, len(requests) + 1
    ):  # messages of one group and instant come in the order of the call
        of_one = [row for (_, sequence, _), row in row_of.items() if sequence == number]
        assert of_one == sorted(of_one)
    [completed] = of(effects, Completed)
    texts = completed.value.ids()
    found = [from_text(each) for each in texts]
    assert [row_of[each.uid, each.sequence, each.row] for each in found] == list(range(rows))
    held = MessageIds.of(completed.value)
    assert list(held) == texts
    assert [held[row] for row in range(0, rows, 97)] == texts[::97]
    [columns] = completed.value.id_runs()
    assert sum(column.nbytes for column in columns) < 15 * rows


def test_a_call_tells_which_row_was_refused_though_all_its_rows_elsewhere_were_taken() -> None:
    stage = Stage(uids={1: "a", 2: "a"}, settings=TopicSettings(version=1, keys="unique").encode())
    stage.connect()
    stage.learn_topic()
    keys = [f"k{row}" for row in range(6)]
    requests = sent(stage.step(insert([b"x"] * 6, [*keys])), ChangeRequest)
    assert [request.uid for request in requests] == [1, 2]
    of_first, of_second = requests
    stage.receive("a", ok(of_first, 5))
    outcomes = [0] * (of_second.rows - 1) + [Outcome.TAKEN]
    one = np.array([1], np.uint64)
    met = replace(
        ok(of_second, 6, outcomes=outcomes), present_first=one, present_sequence=one, present_row=one.astype(np.uint16),
        present_due=one,
    )  # fmt: skip
    [completed] = of(stage.receive("a", met), Completed)
    homes = homes_of_keys(key_hashes([key.encode() for key in keys])[0], 2).tolist()
    refused = max(row for row, home in enumerate(homes) if home == 1)
    for tell in (completed.value.ids, lambda: MessageIds.of(completed.value)):
        with pytest.raises(PartialFailure) as told:
            tell()
        assert [isinstance(row, KeyTaken) for row in told.value.outcomes] == [
            row == refused for row in range(6)
        ]


def test_a_row_without_a_group_goes_where_its_idempotency_key_is_at_home_also_beside_rows_of_groups() -> None:
    """Else its repetition, which may come with other rows or alone, would be another message elsewhere."""
    stage = Stage(uids={1: "a", 2: "a", 3: "a"})
    stage.connect()
    stage.learn_topic()
    names = [b"o%d" % number for number in range(9)]

    def homes_of(names: list[bytes], groups: list[str | None] | None) -> dict[bytes, int]:
        asked = calls.schedule_many(
            TOPIC, names, 10**12, lambda: 0, groups=groups, once=[Once(name, 1) for name in names]
        )
        effects = stage.step(asked.build(7, 1 << 60))
        found: dict[bytes, int] = {}
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, ChangeRequest):
                body = b"".join(map(bytes, effect.bodies))
                found |= {body[at : at + 2]: effect.message.uid for at in range(0, len(body), 2)}
                effects += stage.receive("a", ok(effect.message, 9))
        return found

    groups = ["acme" if row % 3 == 0 else None for row in range(9)]
    alone = homes_of(names, None)
    beside = homes_of(names, groups)
    ungrouped = [name for name, group in zip(names, groups, strict=True) if group is None]
    assert len({alone[name] for name in ungrouped}) == 3
    assert {name: beside[name] for name in ungrouped} == {name: alone[name] for name in ungrouped}
    assert len({beside[name] for name in names if name not in ungrouped}) == 1


def test_an_idempotency_key_stays_at_home_when_the_topic_gets_more_partitions_while_it_waits(
    stage: Stage,
) -> None:
    """What has no home may wait until a request is free, and then go to the partition that has none."""

    def once(call: int) -> events.Insert:
        asked = calls.schedule_many(TOPIC, [b"x"], 10**12, lambda: 0, once=[Once(b"o%d" % call, 1)])
        event = asked.build(call, 1 << 60)
        assert isinstance(event, events.Insert)
        return event

    asked = []
    for call in range(2, 40):
        asked += sent(stage.step(once(call)), ChangeRequest)
    refused, *asked = asked
    stage.leaders[2], stage.home_partitions = "a", 1
    asking = stage.receive("a", ChangeReply(refused.request_id, Code.NOT_LEADER))
    effects = stage.answer_metadata(asking + stage.run_until(stage.ms + 60))
    asked += sent(effects, ChangeRequest)
    [elsewhere] = sent(stage.step(insert([b"y"], None)), ChangeRequest)
    for request in [elsewhere, *asked]:
        asked += sent(stage.receive("a", ok(request, 9)), ChangeRequest)
    assert elsewhere.uid == 2
    assert sum(len(request.once_high) for request in asked) == 37
    assert {request.uid for request in asked} == {1}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["k" * 256], "row 0: a key has at most 255 bytes of UTF-8, not 256: 'kkk"),
        (["ä" * 128], "row 0: a key has at most 255 bytes of UTF-8, not 256"),
        ([5], "row 0: a key is a str, not int: 5"),
        (["\ud800"], "row 0: the key '\\ud800' is not Unicode text"),
        (["a", "b"], "1 rows need 1 keys, not 2"),
        ("a", "keys is a sequence of keys, one per payload, not one str"),
    ],
)
def test_a_key_that_cannot_be_is_refused_with_its_value_and_the_limit(keys: object, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        insert([b"x"], keys)  # type: ignore[arg-type]
    assert said in str(refused.value)


def test_the_limit_of_a_topic_is_on_the_payload_without_its_key(stage: Stage) -> None:
    allowed = stage.metadata(0).topics[0].payload_bytes_max
    assert sent(stage.step(insert([bytes(allowed)], ["k" * 255])), ChunkRequest)
    asked = stage.step(insert([b"", bytes(allowed + 1)], [None, "k"]))
    [failed] = of(stage.answer_metadata(asked + stage.run_until(stage.ms + 60)), Failed)
    assert isinstance(failed.error, PayloadTooLarge)
    assert f"row 1: a payload of {allowed + 1} bytes is longer than the {allowed}" in str(failed.error)


def test_a_long_upload_begins_with_its_key(stage: Stage) -> None:
    stage.step(insert([b"x" * limits.CHUNK_BYTES], ["long"]))
    [chunk] = sent(stage.effects, ChunkRequest)
    assert (chunk.size, chunk.chunks) == (limits.CHUNK_BYTES + 5, 2)
    assert bytes(stage.effects[-1].bodies[0])[:6] == b"\x04longx"  # type: ignore[union-attr]


def test_a_consumer_gets_key_and_payload_apart(stage: Stage) -> None:
    attach = sent(stage.consume(), ConsumerFrame)[-1]
    stored = [with_key(b"name", b"one"), b"\x04untouched", with_key(b"", b"three")]
    message, body = push("a", attach.attach, 1, stored)
    message.rows["keyed"] = [1, 0, 1]
    [delivered] = of(stage.receive("a", message, body), Deliver)
    found = [(delivery.key, delivery.payload) for delivery in delivered.deliveries]
    assert found == [("name", b"one"), ("", b"\x04untouched"), ("", b"three")]

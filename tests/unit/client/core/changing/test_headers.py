"""Headers on their way through the SDK: checked, put before payloads, taken off again."""

from __future__ import annotations

from typing import Any

import pytest

from dueq import limits
from dueq.client import calls
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Deliver
from dueq.errors import InvalidRequest
from dueq_codecs.messages import ChangeRequest, ChunkRequest, ConsumerFrame
from dueq_codecs.meta import HEADERS_BYTES_MAX, Meta, packed_headers, prefix_of
from tests.unit.client.stage import TOPIC, Stage, of, push, sent


@pytest.fixture
def stage() -> Stage:
    """One broker, one partition, connected, topic known."""
    stage = Stage()
    stage.connect()
    stage.learn_topic()
    return stage


def insert(payloads: list[bytes], headers: Any, keys: list[str | None] | None = None) -> events.Insert:
    call = calls.schedule_many(TOPIC, payloads, 10**12, lambda: 0, keys=keys, headers=headers)
    event = call.build(7, 1 << 60)
    assert isinstance(event, events.Insert)
    return event


def stored(payload: bytes, headers: dict[str, str], key: bytes = b"") -> bytes:
    return prefix_of(Meta.HEADERS, key, packed_headers(headers)) + payload


def test_each_payload_gets_its_own_headers(stage: Stage) -> None:
    effects = stage.step(insert([b"a", b"b", b"c"], [{"x": "1"}, None, {}], keys=["k", None, None]))
    [request] = sent(effects, ChangeRequest)
    assert request.keyed is Meta.HEADERS
    expected = stored(b"a", {"x": "1"}, b"k") + stored(b"b", {}) + stored(b"c", {})
    assert stage.effects[-1].bodies == [expected]  # type: ignore[union-attr]


def test_one_mapping_is_for_all(stage: Stage) -> None:
    stage.step(insert([b"a", b"b"], {"x": "1"}))
    assert stage.effects[-1].bodies == [stored(b"a", {"x": "1"}) + stored(b"b", {"x": "1"})]  # type: ignore[union-attr]


@pytest.mark.parametrize("headers", [None, {}, [None, {}]])
def test_where_no_row_has_headers_nothing_is_added(stage: Stage, headers: Any) -> None:
    [request] = sent(stage.step(insert([b"a", b"b"], headers)), ChangeRequest)
    assert request.keyed is Meta.NONE
    assert request.size.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ("text", "headers are a mapping, or one per payload, not 'text'"),
        (7, "headers are a mapping, or one per payload, not 7"),
        ({"a": 1}, "the value of header 'a' is a str, not int: 1"),
        ([{}, {"a": "b"}], "1 rows need 1 headers, not 2"),
        ([["a"]], "row 0: headers are a mapping of str to str, not ['a']"),
        (
            [{"a": "v" * HEADERS_BYTES_MAX}],
            "row 0: the headers of a message take at most 16384 bytes, not 16388",
        ),
    ],
)
def test_headers_that_cannot_be_are_refused_with_their_value_and_the_limit(headers: Any, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        insert([b"x"], headers)
    assert said in str(refused.value)


def test_the_limit_of_a_topic_is_on_the_payload_without_its_headers(stage: Stage) -> None:
    allowed = stage.metadata(0).topics[0].payload_bytes_max
    longest = {"a": "v" * (HEADERS_BYTES_MAX - 4)}
    assert sent(stage.step(insert([bytes(allowed)], longest, ["k" * 255])), ChunkRequest)


def test_a_long_upload_begins_with_its_headers(stage: Stage) -> None:
    stage.step(insert([b"x" * limits.CHUNK_BYTES], {"a": "b"}))
    [chunk] = sent(stage.effects, ChunkRequest)
    before = stored(b"", {"a": "b"})
    assert (chunk.size, chunk.chunks) == (limits.CHUNK_BYTES + len(before), 2)
    assert bytes(stage.effects[-1].bodies[0]).startswith(before + b"x")  # type: ignore[union-attr]


def test_a_consumer_gets_headers_and_payload_apart(stage: Stage) -> None:
    attach = sent(stage.consume(), ConsumerFrame)[-1]
    rows = [stored(b"one", {"a": "b"}, b"name"), b"two", b"\x05\0\0hostile"[:4]]
    message, body = push("a", attach.attach, 1, rows)
    message.rows["keyed"] = [2, 0, 2]
    [delivered] = of(stage.receive("a", message, body), Deliver)
    found = [(each.key, dict(each.headers), each.payload) for each in delivered.deliveries]
    assert found == [("name", {"a": "b"}, b"one"), ("", {}, b"two"), ("", {}, b"\x05\0\0h")]

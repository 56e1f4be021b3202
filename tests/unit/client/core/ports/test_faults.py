"""Which pushes, and which chunks, are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dueq.client.core.ports.faults import SIZE_MAX, fault_of_chunk, fault_of_look, fault_of_push
from dueq.limits import CHUNK_BYTES
from dueq_codecs.messages import Code, LookReply, LookRequest, PushChunk
from tests.unit.client.stage import CONSUMER, TOPIC, push


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES])
def test_a_payload_of_up_to_one_chunk_travels_with_its_push(size: int) -> None:
    assert fault_of_push(*push("a", 1, 1, [bytes(size), b"y"])) is None


def test_a_longer_one_comes_in_chunks_of_its_own() -> None:
    message, body = push("a", 1, 1, [bytes(CHUNK_BYTES + 1), b"y"])
    assert fault_of_push(message, body)
    assert fault_of_push(message, b"y") is None


def test_no_payload_has_more_chunks_than_the_longest_one() -> None:
    """A client that believed in more would keep room for what never comes."""
    most = -(-SIZE_MAX // CHUNK_BYTES)
    for chunk, chunks, told in [
        (0, most, None),
        (most - 1, most, None),
        (most, most, f"there is no chunk {most} of {most}"),
        (0, most + 1, f"there is no chunk 0 of {most + 1}"),
    ]:
        assert fault_of_chunk(PushChunk(TOPIC, CONSUMER, 1, 1, 50, 0, 60, chunk, chunks, "a"), b"x") == told


def test_a_look_at_a_payload_brings_one_chunk_at_most() -> None:
    """A longer one would be shown in the place of what comes after it."""
    request = LookRequest(1, TOPIC, 1, "message", upload=7)
    for size, told in [
        (CHUNK_BYTES, None),
        (CHUNK_BYTES + 1, f"a chunk has {CHUNK_BYTES + 1} bytes"),
    ]:
        assert fault_of_look(request, LookReply(1, Code.OK), bytes(size)) == told


PLACE: list[Any] = [1_800_000_000_000, 5 << 16, "0001"]


@pytest.mark.parametrize(
    ("what", "after", "answer"),
    [
        ("leased", -1, {"leased": [], "more": False}),
        ("leased", -1, {"leased": [[9, 0, 0], [1, 5, 3], [1, 6, 0]], "more": True}),
        ("leased", 5 << 16 | 2, {"leased": [[1, 5, 3]], "more": False}),
        ("seconds", None, {"counts": [], "after": None}),
        ("seconds", None, {"counts": [[1_000, 3]], "after": PLACE}),
        ("seconds", PLACE, {"counts": [], "after": [0, -1, "0002"]}),
        ("seconds", PLACE, {"counts": [], "after": [PLACE[0], (5 << 16) + 1, "0001"]}),
        ("seconds", PLACE, {"counts": [[1_000, 3]], "after": None}),
        ("count", PLACE, {"matched": 0, "after": [PLACE[0] + 1, -1, "0001"]}),
        ("count", None, {"matched": 7, "after": None}),
    ],
)
def test_answers_that_follow_each_other_lead_further(what: str, after: Any, answer: dict[str, Any]) -> None:
    assert fault_of_survey(what, after, answer) is None


@pytest.mark.parametrize(
    ("what", "after", "answer"),
    [
        ("leased", -1, {}),
        ("leased", -1, {"leased": []}),
        ("leased", -1, {"more": False}),
        ("leased", -1, {"leased": [], "more": True}),
        ("leased", -1, {"leased": [], "more": 0}),
        ("leased", -1, {"leased": None, "more": False}),
        ("leased", -1, {"leased": [[1, 5]], "more": False}),
        ("leased", -1, {"leased": [["1", 5, 3]], "more": False}),
        ("leased", -1, {"leased": [[1, 1 << 40, 3]], "more": False}),
        ("leased", -1, {"leased": [[1, 5, 1 << 16]], "more": False}),
        ("leased", 5 << 16 | 3, {"leased": [[1, 5, 3]], "more": True}),
        ("leased", -1, {"leased": [[1, 5, 3], [1, 5, 3]], "more": True}),
        ("seconds", None, {"counts": []}),
        ("seconds", None, {"after": None}),
        ("seconds", None, {"counts": [[1_000]], "after": None}),
        ("seconds", None, {"counts": [[1_000, -1]], "after": None}),
        ("seconds", None, {"counts": [], "after": [1, 2]}),
        ("seconds", None, {"counts": [], "after": [1, 2, "no hex"]}),
        ("seconds", PLACE, {"counts": [[1_000, 3]], "after": PLACE}),
        ("seconds", PLACE, {"counts": [], "after": [PLACE[0] + 1, 0, "0000"]}),
        ("seconds", PLACE, {"counts": [], "after": ["x", 0, "0001"]}),
        ("count", PLACE, {"matched": 7, "after": PLACE}),
        ("count", None, {"matched": "7", "after": None}),
        ("count", None, {"matched": 7}),
    ],
)
def test_an_answer_that_leads_no_further_is_none(what: str, after: Any, answer: dict[str, Any]) -> None:
    """Who believed it would ask without end."""
    told = fault_of_survey(what, after, answer)
    assert told is not None
    assert told.startswith(f"a {what} behind")


def fault_of_survey(what: str, after: Any, answer: dict[str, Any]) -> str | None:
    request = LookRequest(1, TOPIC, 1, what, document=json.dumps({"after": after}))
    return fault_of_look(request, LookReply(1, Code.OK, document=json.dumps(answer)), b"")


def test_the_first_answer_to_an_idempotency_key_is_a_message_or_none() -> None:
    request = LookRequest(1, TOPIC, 1, "message", document='{"key":"0f"}')
    for document, sound in [
        ('{"answered":[9,1,5,3],"due":77,"digest":9223372036854775808}', True),
        ('{"answered":[9,1,5],"due":77,"digest":1}', False),
        ('{"answered":{"first":9},"due":77,"digest":1}', False),
        ('{"answered":[9,1,-5,3],"due":77,"digest":1}', False),
        ('{"answered":[9,1,5,3],"due":77.5,"digest":1}', False),
        ('{"answered":[9,1,5,3],"due":77}', False),
        ('{"answered":[0,0,0,0],"due":0,"digest":1}', True),
        ('{"answered":[281474976710656,1,5,3],"due":77,"digest":1}', False),
        ('{"answered":[9,16777216,5,3],"due":77,"digest":1}', False),
        ('{"answered":[9,1,1099511627776,3],"due":77,"digest":1}', False),
        ('{"answered":[9,1,5,65536],"due":77,"digest":1}', False),
        ('{"answered":[9,1,5,3],"due":281474976710656,"digest":1}', False),
        ('{"answered":[9,1,5,3],"due":77,"digest":18446744073709551616}', False),
    ]:
        fault = fault_of_look(request, LookReply(1, Code.OK, document=document), b"")
        assert (fault is None) == sound

"""Long payloads on their way: what becomes of their chunks when a leader is silent, or another one leads."""

from __future__ import annotations

from zlib import crc32

import pytest

from dueq import limits
from dueq.client.core.changing.uploads import WINDOW
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Effect, Failed, Send
from dueq.errors import Busy, Disconnected, TopicNotFound
from dueq_codecs.messages import (
    ChangeRequest,
    ChunkReply,
    ChunkRequest,
    Code,
    MetadataReply,
    MetadataRequest,
)
from tests.unit.client.stage import Stage, endpoint, of, sent

LONG = bytes(limits.CHUNK_BYTES) + b"end"
"""Two chunks."""


@pytest.fixture
def stage() -> Stage:
    """Two brokers; the first leads the only partition."""
    stage = Stage(["a", "b"])
    stage.connect()
    stage.learn_topic()
    return stage


def safe(request: ChunkRequest, upload: int) -> ChunkReply:
    return ChunkReply(request.request_id, Code.OK, upload=upload, chunk=request.chunk)


def upload(stage: Stage, broker: str, effects: list[Effect], numbers: list[int]) -> list[Effect]:
    """A leader takes rows whole, under these numbers; returns what follows the last one."""
    for number in numbers:
        for expected in range(2):
            [chunk] = sent(effects, ChunkRequest)
            assert (chunk.upload, chunk.chunk) == (number if expected else 0, expected)
            effects = stage.receive(broker, safe(chunk, number))
    return effects


def test_rows_that_an_earlier_leader_has_are_uploaded_to_the_new_one_too(stage: Stage) -> None:
    """Its uploads have numbers of their own: the first leader's 5 would be another payload there."""
    effects = upload(stage, "a", stage.insert(7, LONG, LONG), [5])
    [chunk] = sent(effects, ChunkRequest)
    stage.leaders, stage.epoch = {1: "b"}, 2
    effects = stage.receive("a", ChunkReply(chunk.request_id, Code.NOT_LEADER, "why", leader="b"))
    [request] = sent(upload(stage, "b", stage.run_until(stage.ms + 200), [8, 9]), ChangeRequest)
    assert request.upload.tolist() == [8, 9]


def test_a_chunk_that_nobody_answers_is_sent_again_and_a_late_answer_changes_nothing(stage: Stage) -> None:
    [first] = sent(stage.insert(7, LONG), ChunkRequest)
    [second] = sent(stage.receive("a", safe(first, 5)), ChunkRequest)
    [again] = sent(stage.run_until(stage.ms + 2_100), ChunkRequest)
    assert (again.upload, again.chunk) == (second.upload, second.chunk)
    assert again.request_id != second.request_id
    assert not sent(stage.receive("a", safe(second, 5)), ChangeRequest)
    [request] = sent(stage.receive("a", safe(again, 5)), ChangeRequest)
    assert request.upload.tolist() == [5]


# -------------------------------------------------------------- how chunks go


def refused(request: ChunkRequest, code: Code, leader: str = "", retry_after_ms: int = 0) -> ChunkReply:
    return ChunkReply(request.request_id, code, "why", leader=leader, retry_after_ms=retry_after_ms)


def links_of(effects: list[Effect]) -> list[int]:
    """By which links chunks went."""
    return [effect.link for effect in of(effects, Send) if isinstance(effect.message, ChunkRequest)]


def test_a_few_chunks_are_under_way_at_a_time_once_the_first_has_named_the_upload(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More would fill the link, and frames of consumers would wait behind them."""
    monkeypatch.setattr(limits, "CHUNK_BYTES", 1_000)
    payload = bytes((WINDOW + 2) * limits.CHUNK_BYTES)
    [first] = sent(stage.insert(7, payload), ChunkRequest)
    under_way = sent(stage.receive("a", safe(first, 5)), ChunkRequest)
    assert [chunk.chunk for chunk in under_way] == [1, 2, 3, 4]
    following = [sent(stage.receive("a", safe(chunk, 5)), ChunkRequest) for chunk in under_way]
    assert [[chunk.chunk for chunk in chunks] for chunks in following] == [[5], [], [], []]


def test_each_chunk_says_what_it_is_of(stage: Stage) -> None:
    payload = bytes(range(256)) * (limits.CHUNK_BYTES // 256) + b"end"
    effects = stage.insert(7, payload)
    [first] = sent(effects, ChunkRequest)
    effects += stage.receive("a", safe(first, 5))
    frames = [effect for effect in of(effects, Send) if isinstance(effect.message, ChunkRequest)]
    pieces = [payload[: limits.CHUNK_BYTES], b"end"]
    assert [b"".join(map(bytes, frame.bodies)) for frame in frames] == pieces
    assert [(each.chunks, each.size, each.crc) for each in sent(effects, ChunkRequest)] == [
        (2, len(payload), crc32(piece)) for piece in pieces
    ]


def test_an_upload_that_the_leader_does_not_know_any_more_begins_anew(stage: Stage) -> None:
    """It has forgotten it, as nothing came for long, or has been started anew."""
    [first] = sent(stage.insert(7, LONG), ChunkRequest)
    [second] = sent(stage.receive("a", safe(first, 5)), ChunkRequest)
    effects = stage.receive("a", refused(second, Code.UNKNOWN_UPLOAD)) + stage.run_until(stage.ms + 200)
    [request] = sent(upload(stage, "a", effects, [6]), ChangeRequest)
    assert request.upload.tolist() == [6]


def test_an_upload_that_is_unknown_begins_anew_once_whichever_of_its_chunks_are_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several were under way: the answers to the others speak of the upload that was given up."""
    monkeypatch.setattr(limits, "CHUNK_BYTES", len(LONG) // 3 + 1)
    [first] = sent(stage.insert(7, LONG), ChunkRequest)
    second, third = sent(stage.receive("a", safe(first, 5)), ChunkRequest)
    for chunk in (second, third):
        assert not sent(stage.receive("a", refused(chunk, Code.UNKNOWN_UPLOAD)), ChunkRequest)
    [again] = sent(stage.run_until(stage.ms + 200), ChunkRequest)
    assert (again.upload, again.chunk) == (0, 0)
    chunks = sent(stage.receive("a", safe(again, 6)), ChunkRequest)
    assert [(chunk.upload, chunk.chunk) for chunk in chunks] == [(6, 1), (6, 2)]


def test_a_leader_that_was_named_gets_the_chunk_that_another_one_has_refused(stage: Stage) -> None:
    [first] = sent(stage.insert(7, LONG), ChunkRequest)
    effects = stage.receive("a", refused(first, Code.NOT_LEADER, leader="b")) + stage.run_until(200)
    assert links_of(effects) == [stage.links[endpoint("b")]]
    assert sent(upload(stage, "b", effects, [5]), ChangeRequest)


def test_chunks_for_a_partition_that_nobody_leads_go_to_who_leads_it_next(stage: Stage) -> None:
    [first] = sent(stage.insert(7, LONG), ChunkRequest)
    asking = stage.receive("a", refused(first, Code.NOT_LEADER))
    stage.leaders, stage.epoch = {1: ""}, 2
    stage.answer_metadata(asking + stage.run_until(60))
    effects = stage.run_until(500)
    assert links_of(effects) == []
    stage.leaders, stage.epoch = {1: "b"}, 3
    effects = stage.answer_metadata(effects) + stage.run_until(1_500)
    assert links_of(effects) == [stage.links[endpoint("b")]]


def test_chunks_whose_link_is_lost_go_by_another_one(stage: Stage) -> None:
    """Not those that were safe before."""
    [first] = sent(stage.insert(7, LONG), ChunkRequest)
    stage.receive("a", safe(first, 5))
    effects = stage.step(events.LinkLost(stage.links[endpoint("a")], "gone")) + stage.run_until(200)
    assert links_of(effects) == [stage.links[endpoint("b")]]
    [again] = sent(effects, ChunkRequest)
    assert (again.upload, again.chunk) == (5, 1)
    [request] = sent(stage.receive("b", safe(again, 5)), ChangeRequest)
    assert request.upload.tolist() == [5]


# -------------------------------------------------------------- what becomes of the call


def test_who_is_busy_gets_the_chunk_after_the_time_that_it_names(stage: Stage) -> None:
    [first] = sent(stage.insert(7, LONG), ChunkRequest)
    effects = stage.receive("a", refused(first, Code.BUSY, retry_after_ms=1_000))
    assert not sent(effects + stage.run_until(450), ChunkRequest)
    assert [chunk.chunk for chunk in sent(stage.run_until(1_050), ChunkRequest)] == [0]


def test_who_stays_busy_is_why_the_call_fails_in_the_end(stage: Stage) -> None:
    [first] = sent(stage.insert(7, LONG, timeout_ms=300), ChunkRequest)
    stage.receive("a", refused(first, Code.BUSY, retry_after_ms=10_000))
    [failed] = of(stage.run_until(300), Failed)
    assert isinstance(failed.error, Busy)
    assert not sent(stage.run_until(20_000), ChunkRequest), "nobody wants it any more"


def test_a_call_whose_chunks_nobody_has_answered_in_time_has_inserted_nothing(stage: Stage) -> None:
    stage.insert(7, LONG, timeout_ms=300)
    [failed] = of(stage.run_until(300), Failed)
    assert isinstance(failed.error, Disconnected)
    assert "nothing was inserted" in str(failed.error)


def test_a_topic_that_is_gone_while_its_chunks_are_under_way_fails_the_call(stage: Stage) -> None:
    """Who has not heard of the topic is not believed at once: all are asked."""
    [first] = sent(stage.insert(7, LONG), ChunkRequest)
    effects = stage.receive("a", refused(first, Code.TOPIC_NOT_FOUND))
    assert not of(effects, Failed)
    asked = 0
    while not (failed := of(effects, Failed)):
        assert stage.ms < 2_000
        effects += stage.run_until(stage.ms + 20)
        for question in sent(effects, MetadataRequest)[asked:]:
            asked += 1
            effects += stage.receive(
                "ab"[asked % 2], MetadataReply(question.request_id, Code.TOPIC_NOT_FOUND)
            )
    assert [type(each.error) for each in failed] == [TopicNotFound]
    assert asked == 2

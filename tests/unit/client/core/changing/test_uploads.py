"""Long payloads on their way: what becomes of their chunks when a leader is silent, or another one leads."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.client.core.ports.effects import Effect
from dueq_codecs.messages import ChangeRequest, ChunkReply, ChunkRequest, Code
from tests.unit.client.stage import Stage, sent

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

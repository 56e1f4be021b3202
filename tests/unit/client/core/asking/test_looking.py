"""Looks: the leader of the message's partition is asked until it answers."""

from __future__ import annotations

import pytest

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed, Effect, Failed, Send
from dueq.errors import Broken, InvalidRequest
from dueq_codecs.messages import Code, LookReply, LookRequest
from tests.unit.client.stage import TOPIC, Stage, endpoint, of, sent

PATIENCE_MS = 10_000
DOCUMENT = '{"upload":0,"size":4}'


@pytest.fixture
def stage() -> Stage:
    """Two brokers, connected; a leads the one partition."""
    stage = Stage(["a", "b"])
    stage.connect()
    stage.learn_topic()
    return stage


def look(stage: Stage, uid: int = 1) -> list[Effect]:
    at_us = stage.at_us(stage.ms + PATIENCE_MS)
    return stage.step(events.Look(7, at_us, TOPIC, uid, "message", 5, 6, 7, current=True))


def test_the_answer_of_the_leader_completes_the_call(stage: Stage) -> None:
    [request] = sent(look(stage), LookRequest)
    assert (request.uid, request.first, request.sequence, request.row, request.current) == (1, 5, 6, 7, True)
    [done] = of(
        stage.receive("a", LookReply(request.request_id, Code.OK, document=DOCUMENT), b"body"), Completed
    )
    assert (done.call, done.value.document, done.value.body) == (7, DOCUMENT, b"body")


def test_the_new_leader_is_asked_the_same(stage: Stage) -> None:
    [request] = sent(look(stage), LookRequest)
    stage.leaders, stage.epoch = {1: "b"}, 2
    effects = stage.receive("a", LookReply(request.request_id, Code.NOT_LEADER, "why"))
    effects += stage.run_until(stage.ms + 60)
    stage.answer_metadata(effects)
    again = [effect for effect in stage.run_until(stage.ms + 200) if isinstance(effect, Send)]
    assert [send.link for send in again if isinstance(send.message, LookRequest)] == [
        stage.links[endpoint("b")]
    ]


def test_a_message_of_another_topic_is_refused(stage: Stage) -> None:
    asked = look(stage, uid=99) + stage.run_until(stage.ms + 60)
    asked = stage.answer_metadata(asked) + stage.run_until(stage.ms + 60)  # the other broker may know more
    [failed] = of(stage.answer_metadata(asked), Failed)
    assert isinstance(failed.error, InvalidRequest)
    assert "partition 99" in str(failed.error)


def test_a_chunk_that_is_not_there_fails_at_once(stage: Stage) -> None:
    [request] = sent(look(stage), LookRequest)
    [failed] = of(stage.receive("a", LookReply(request.request_id, Code.BROKEN, "gone")), Failed)
    assert isinstance(failed.error, Broken)

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


def asks(stage: Stage, until_ms: float) -> list[Effect]:
    """Let time pass, and answer every question about the topic meanwhile."""
    effects: list[Effect] = []
    while stage.ms < until_ms:
        effects += stage.answer_metadata(stage.run_until(min(stage.ms + 20, until_ms)))
    return effects


def test_a_broker_whose_link_is_about_to_open_may_know_of_the_partition() -> None:
    """A client that has just begun has reached one that lags."""
    stage = Stage(["a", "b"])
    stage.connect("a")
    stage.learn_topic()
    effects = stage.answer_metadata(look(stage, uid=2)) + asks(stage, stage.ms + 300)
    assert of(effects, Failed) == []
    stage.connect("b")
    stage.leaders = {1: "a", 2: "b"}
    assert looks(asks(stage, stage.ms + 300)) == [stage.links[endpoint("b")]]


def test_a_broker_whose_link_does_not_open_is_not_waited_for_for_long() -> None:
    stage = Stage(["a", "b"])
    stage.connect("a")
    stage.learn_topic()
    [failed] = of(stage.answer_metadata(look(stage, uid=2)) + asks(stage, stage.ms + 1_200), Failed)
    assert "partition 2" in str(failed.error)


def test_a_chunk_that_is_not_there_fails_at_once(stage: Stage) -> None:
    [request] = sent(look(stage), LookRequest)
    [failed] = of(stage.receive("a", LookReply(request.request_id, Code.BROKEN, "gone")), Failed)
    assert isinstance(failed.error, Broken)


def looks(effects: list[Effect]) -> list[int]:
    """By which links looks went."""
    return [effect.link for effect in of(effects, Send) if isinstance(effect.message, LookRequest)]


def test_a_look_whose_link_is_lost_goes_by_another_one(stage: Stage) -> None:
    assert looks(look(stage)) == [stage.links[endpoint("a")]]
    effects = stage.step(events.LinkLost(stage.links[endpoint("a")], "gone"))
    assert looks(effects + stage.run_until(stage.ms + 150)) == [stage.links[endpoint("b")]]


def test_a_look_goes_out_as_soon_as_there_is_a_broker(stage: Stage) -> None:
    for broker in stage.brokers:
        stage.step(events.LinkLost(stage.links[endpoint(broker)], "gone"))
    assert looks(look(stage) + stage.run_until(stage.ms + 150)) == []
    assert looks(stage.connect("a")) == [stage.links[endpoint("a")]]


def test_who_was_named_as_the_leader_is_asked_though_nobody_has_told_who_leads(stage: Stage) -> None:
    [request] = sent(look(stage), LookRequest)
    moved = LookReply(request.request_id, Code.NOT_LEADER, "why", leader="b")
    effects = stage.receive("a", moved) + stage.run_until(stage.ms + 150)
    assert looks(effects) == [stage.links[endpoint("b")]]


@pytest.mark.parametrize("wrong", ["{}", '{"leased":[],"more":true}', '{"leased":[[5,6,7]],"more":true}'])
def test_a_list_that_leads_no_further_is_no_answer(stage: Stage, wrong: str) -> None:
    """The call has its time; what believed it would ask for the same again and again."""
    at_us, behind = stage.at_us(stage.ms + PATIENCE_MS), f'{{"after":{6 << 16 | 7}}}'
    effects = stage.step(events.Look(7, at_us, TOPIC, 1, "leased", document=behind))
    [request] = sent(effects, LookRequest)
    assert of(stage.receive("a", LookReply(request.request_id, Code.OK, document=wrong)), Completed) == []
    right = '{"leased":[[5,6,8]],"more":false}'
    [done] = of(stage.receive("a", LookReply(request.request_id, Code.OK, document=right)), Completed)
    assert done.value.document == right

"""What a client believes of what brokers say of each other and of topics, and for how long."""

from __future__ import annotations

import pytest

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import CloseLink, Effect, Failed, OpenLink, Send
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code, Hello, MetadataReply, MetadataRequest
from tests.unit.client.stage import TOPIC, WALL, Stage, endpoint, hello_reply, of, ok, sent


def used(stage: Stage, effects: list[Effect]) -> list[str]:
    """By whose links changes were sent."""
    brokers = {stage.links[endpoint(broker)]: broker for broker in stage.brokers}
    return [brokers[e.link] for e in of(effects, Send) if isinstance(e.message, ChangeRequest)]


def test_who_was_named_as_the_leader_is_one_until_the_next_news_of_the_topic() -> None:
    """It may have been wrong, or have died since: requests would go to it for ever."""
    stage = Stage(["a", "b"])
    stage.connect()
    stage.learn_topic()
    [request] = sent(stage.insert(7, b"x"), ChangeRequest)
    moved = ChangeReply(request.request_id, Code.NOT_LEADER, leader="b")
    assert used(stage, stage.receive("a", moved)) == ["b"]
    silence = stage.run_until(stage.ms + 2_100)
    stage.epoch = 2
    assert used(stage, stage.answer_metadata(silence))[-1:] == ["a"]


def test_a_topic_that_was_heard_of_long_ago_is_asked_for_while_it_is_used() -> None:
    """It may have got more partitions."""
    stage = Stage()
    stage.connect()
    stage.learn_topic()
    stage.ms = 4_000
    effects = stage.insert(7, b"x")
    assert not sent(effects, MetadataRequest)
    stage.receive("a", ok(sent(effects, ChangeRequest)[0], 5))
    stage.ms = 31_000
    effects = stage.insert(8, b"x")
    assert len(sent(effects, MetadataRequest)) == 1


@pytest.mark.parametrize("code", [Code.BUSY, Code.COORDINATOR_UNAVAILABLE, Code.NOT_LEADER])
def test_a_broker_that_does_not_know_yet_whether_there_is_a_topic_is_asked_again(code: Code) -> None:
    """It has just started; the call has time until its deadline."""
    stage = Stage()
    stage.connect()
    [question] = sent(stage.insert(7, b"x"), MetadataRequest)
    effects = stage.receive("a", MetadataReply(question.request_id, code, "why"))
    effects += stage.run_until(stage.ms + 300)
    assert not of(effects, Failed)
    assert len(sent(stage.answer_metadata(effects), ChangeRequest)) == 1


def ask(stage: Stage, *brokers: str) -> list[Effect]:
    """Ask who is there, and have these named."""
    stage.brokers = list(brokers)
    asking = stage.step(events.FetchTopics(50, stage.at_us(stage.ms + 5_000), TOPIC))
    return asking + stage.answer_metadata(asking)


def test_a_learned_broker_that_is_named_no_more_is_left_only_when_its_link_is_down() -> None:
    """It may be cut off from ZooKeeper, and serve all the same: what is under way there would get no answer."""
    stage = Stage()
    stage.connect()
    assert of(ask(stage, "a", "b"), OpenLink)
    stage.connect("b")
    assert not of(ask(stage, "a"), CloseLink)
    stage.step(events.LinkLost(stage.links[endpoint("b")], "why"))
    ask(stage, "a")
    assert endpoint("b") not in {e.endpoint for e in of(stage.run_until(stage.ms + 4_000), OpenLink)}


def test_who_was_named_by_the_user_is_never_left() -> None:
    """He may be the only one whom the client reaches after all others have gone."""
    stage = Stage()
    stage.connect()
    ask(stage, "a", "b")
    stage.connect("b")
    stage.step(events.LinkLost(stage.links[endpoint("a")], "why"))
    ask(stage, "b")
    assert endpoint("a") in {e.endpoint for e in of(stage.run_until(stage.ms + 4_000), OpenLink)}


def test_each_broker_hears_of_which_mesh_the_first_one_was() -> None:
    """So one of another mesh refuses: messages would go to either."""
    stage = Stage(["a", "b"])
    stage.connect("a")
    [hello] = sent(stage.step(events.LinkReady(stage.links[endpoint("b")])), Hello)
    assert hello.cluster_id == "k"
    stage.receive("b", hello_reply("b", hello.sent_wall_us, WALL))
    assert {each.cluster_id for each in sent(stage.run_until(stage.ms + 2_100), Hello)} == {"k"}


def test_a_late_answer_to_an_earlier_hello_measures_nothing() -> None:
    """Taken for one to the latest, it would have been under way for less time than it was."""
    stage = Stage()
    stage.connect()
    known = stage.core.clock.best
    assert known is not None
    [second] = sent(stage.run_until(2_000), Hello)
    stage.receive("a", hello_reply("a", second.sent_wall_us - 2_000_000, WALL + 3_600_000_000))
    assert stage.core.clock.best == known

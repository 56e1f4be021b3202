"""What a client believes of what brokers say of each other and of topics, and for how long."""

from __future__ import annotations

import pytest

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import CloseLink, ConsumerFailed, Effect, Failed, OpenLink, Send
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


def test_a_topic_that_was_just_heard_of_is_not_asked_for_again_at_once() -> None:
    """Many requests may be refused together, and each of them asks who leads."""
    stage = Stage()
    stage.connect()
    stage.learn_topic()
    [request] = sent(stage.insert(7, b"x"), ChangeRequest)
    refused = stage.receive("a", ChangeReply(request.request_id, Code.NOT_LEADER))
    assert not sent(refused + stage.run_until(49), MetadataRequest)
    assert len(sent(stage.run_until(50), MetadataRequest)) == 1


def test_who_was_named_as_the_leader_is_none_once_it_says_so() -> None:
    """The one before may lead after all, and who knows better does not answer."""
    stage = Stage(["a", "b"])
    stage.connect()
    stage.learn_topic()
    [request] = sent(stage.insert(7, b"x"), ChangeRequest)
    assert used(stage, stage.receive("a", ChangeReply(request.request_id, Code.NOT_LEADER, leader="b"))) == [
        "b"
    ]
    refused = stage.receive("b", ChangeReply(request.request_id, Code.NOT_LEADER))
    assert used(stage, refused + stage.run_until(stage.ms + 600)) == ["a"]


def test_brokers_that_are_named_with_a_topic_are_connected_to() -> None:
    """They may lead it."""
    stage = Stage()
    stage.connect()
    stage.brokers.append("b")
    stage.learn_topic()
    assert endpoint("b") in {effect.endpoint for effect in of(stage.effects, OpenLink)}


def test_brokers_that_name_each_other_as_the_leader_are_not_asked_by_turns_all_the_time() -> None:
    """While a leader changes, each may still believe in the other."""
    stage = Stage(["a", "b"])
    stage.connect()
    stage.learn_topic()
    [request] = sent(stage.insert(7, b"x"), ChangeRequest)

    def told(broker: str, leader: str) -> list[str]:
        return used(
            stage, stage.receive(broker, ChangeReply(request.request_id, Code.NOT_LEADER, leader=leader))
        )

    assert told("a", "b") == ["b"]
    assert told("b", "a") == ["a"]
    assert told("a", "b") == []
    assert used(stage, stage.run_until(stage.ms + 600)) == ["b"]


def test_a_topic_that_one_broker_has_not_heard_of_is_asked_for_at_the_others() -> None:
    """It was just created."""
    stage = Stage(["a", "b"])
    stage.connect()
    asking = stage.insert(7, b"x")
    [first] = of(asking, Send)
    assert isinstance(first.message, MetadataRequest)
    unknown = MetadataReply(first.message.request_id, Code.TOPIC_NOT_FOUND)
    asking = stage.step(events.FrameReceived(first.link, unknown, []))
    assert not of(asking, Failed)
    [second] = of(asking, Send)
    assert {first.link, second.link} == set(stage.links.values())
    assert sent(stage.answer_metadata(asking), ChangeRequest)


def test_a_broker_that_does_not_tell_of_a_topic_ends_nothing_that_uses_it() -> None:
    stage = Stage()
    stage.connect()
    stage.consume()
    question = sent(stage.run_until(2_100), MetadataRequest)[-1]
    effects = stage.receive("a", MetadataReply(question.request_id, Code.NOT_ALLOWED, "why"))
    assert of(effects, ConsumerFailed) == []
    assert sent(stage.insert(7, b"x"), ChangeRequest), "the topic is still known"

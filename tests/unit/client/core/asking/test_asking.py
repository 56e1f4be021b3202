"""A question to any broker: asked elsewhere after a silence, and not faster than it can be answered."""

from __future__ import annotations

import weakref
from itertools import pairwise

import numpy as np

from dueq.client.core.ports.effects import Completed, Effect, Failed, Send
from dueq.client.core.ports.events import FetchTopics, Insert, Inspect, LinkLost
from dueq.errors import Disconnected
from dueq_codecs.messages import (
    BrokerInfo,
    ChangeRequest,
    Code,
    Hello,
    InspectRequest,
    MetadataReply,
    MetadataRequest,
    Reply,
    TopicInfo,
)
from tests.unit.client.stage import TOPIC, Stage, endpoint, hello_reply, of, ok, sent


def connected() -> Stage:
    stage = Stage()
    stage.connect()
    return stage


def topic(name: str) -> TopicInfo:
    return TopicInfo(name, "timeline", 3, 2, 1 << 20, 0)


def test_where_every_broker_is_silent_the_answer_gets_more_time_with_each_round() -> None:
    """An answer that takes longer than the silence would come to a question that is not open any more."""
    stage = connected()
    stage.step(FetchTopics(1, stage.at_us(60_000), ""))
    stage.run_until(stage.ms + 3_900)
    assert len(sent(stage.effects, MetadataRequest)) == 3


def test_a_question_without_an_answer_goes_to_a_broker_that_was_not_asked_yet() -> None:
    """However many other questions are asked meanwhile."""
    stage = Stage(["a", "b"])
    stage.connect()
    effects: list[Effect] = []
    for call, name in enumerate(("one", "two")):
        effects += stage.step(FetchTopics(call, stage.at_us(60_000), name))
    effects += stage.run_until(1_050)
    asked: dict[str, list[int]] = {}
    for effect in of(effects, Send):
        if isinstance(effect.message, MetadataRequest):
            asked.setdefault(effect.message.topic, []).append(effect.link)
    both = sorted(stage.links.values())
    assert {name: sorted(links) for name, links in asked.items()} == {"one": both, "two": both}


def test_every_broker_is_asked_before_any_is_given_more_time() -> None:
    stage = Stage(["a", "b", "c"])
    stage.connect()
    stage.step(FetchTopics(1, stage.at_us(60_000), ""))
    for asked in (1, 2, 3):
        assert len(sent(stage.effects, MetadataRequest)) == asked
        stage.run_until(stage.ms + 1_000)


def test_what_had_to_wait_for_a_broker_is_asked_once() -> None:
    stage = Stage()
    stage.insert(1, b"x")
    [request] = sent(stage.answer_metadata(stage.connect()), ChangeRequest)
    assert of(stage.receive("a", ok(request, 5)), Completed)
    stage.step(LinkLost(stage.links[endpoint("a")], "gone"))
    stage.run_until(stage.ms + 300)
    assert sent(stage.connect(), MetadataRequest) == []


def test_what_nobody_waits_for_any_more_is_not_asked_again() -> None:
    """A caller that tries again and again would have ever more questions asked each second."""
    stage = connected()
    stage.step(FetchTopics(1, stage.at_us(500), ""))
    assert of(stage.run_until(500), Failed)
    assert sent(stage.run_until(4_500), MetadataRequest) == []


def test_however_long_nobody_answers_it_is_asked_every_eight_seconds() -> None:
    """Else a caller with much patience would wait for as long again when the brokers are well."""
    stage = connected()
    stage.step(FetchTopics(1, stage.at_us(120_000), ""))
    asked = [stage.ms]
    while stage.ms < 60_000:
        effects = stage.run_until(stage.ms + 250)
        asked += [stage.ms] * len(sent(effects, MetadataRequest))
        for hello in sent(effects, Hello):  # the link is well
            stage.receive("a", hello_reply("a", hello.sent_wall_us, stage.now.wall_us))
    waits = [later - earlier for earlier, later in pairwise(asked)]
    assert waits[:4] == [1_000, 2_000, 4_000, 8_000]
    assert set(waits[3:]) == {8_000}


def test_all_topics_are_asked_for_until_no_others_follow() -> None:
    stage = connected()
    [first] = sent(stage.step(FetchTopics(1, stage.at_us(60_000), "")), MetadataRequest)
    told = MetadataReply(first.request_id, Code.OK, topics=(topic("a"), topic("b")), more=True)
    [second] = sent(stage.receive("a", told), MetadataRequest)
    assert (first.after, second.after) == ("", "b")
    [done] = of(
        stage.receive("a", MetadataReply(second.request_id, Code.OK, topics=(topic("c"),))), Completed
    )
    assert [told.name for told in done.value.topics] == ["a", "b", "c"]


def test_the_status_asks_for_the_brokers_alone() -> None:
    stage = connected()
    [question] = sent(stage.step(Inspect(1, stage.at_us(30_000), "status")), MetadataRequest)
    assert question.brokers_only


def test_where_nobody_has_answered_yet_the_first_who_does_gives_the_others_a_while() -> None:
    stage = connected()
    [question] = sent(stage.step(Inspect(1, stage.at_us(30_000), "status")), MetadataRequest)
    infos = tuple(BrokerInfo(broker, endpoint(broker)) for broker in ("a", "b"))
    asked = sent(stage.receive("a", MetadataReply(question.request_id, Code.OK, "", infos)), InspectRequest)
    assert not of(stage.run_until(stage.ms + 10_000), Completed)
    assert not of(stage.receive("a", Reply(asked[0].request_id, Code.OK, document="{}")), Completed)
    [done] = of(stage.receive("b", Reply(asked[1].request_id, Code.OK, document="{}")), Completed)
    assert set(done.value.documents) == {"a", "b"}


def inspecting(stage: Stage, *registered: str) -> dict[str, int]:
    """The brokers are asked for their status; returns the request that each one got."""
    [question] = sent(stage.step(Inspect(1, stage.at_us(30_000), "status")), MetadataRequest)
    infos = tuple(BrokerInfo(broker, endpoint(broker)) for broker in registered)
    effects = stage.receive("a", MetadataReply(question.request_id, Code.OK, "", infos))
    return {request.broker: request.request_id for request in sent(effects, InspectRequest)}


def test_a_broker_that_does_not_answer_is_left_out_after_two_seconds() -> None:
    """It may be dead, and its status is what the user wants to see soon."""
    stage = Stage(["a", "b"])
    stage.connect()
    asked = inspecting(stage, "a", "b")
    assert not of(stage.receive("a", Reply(asked["a"], Code.OK, document="{}")), Completed)
    assert not of(stage.run_until(1_900), Completed)
    [done] = of(stage.run_until(2_000), Completed)
    assert set(done.value.documents) == {"a"}


def test_a_broker_that_refuses_has_no_status() -> None:
    stage = Stage(["a", "b"])
    stage.connect()
    asked = inspecting(stage, "a", "b")
    stage.receive("a", Reply(asked["a"], Code.OK, document="{}"))
    [done] = of(stage.receive("b", Reply(asked["b"], Code.BUSY, "why")), Completed)
    assert done.value.documents == {"a": "{}"}


def test_a_broker_that_is_connected_is_asked_though_it_is_not_registered() -> None:
    """It may be cut off from ZooKeeper: just then its status is wanted."""
    stage = Stage(["a", "b"])
    stage.connect()
    assert set(inspecting(stage, "a")) == {"a", "b"}


def test_calls_that_are_over_leave_nothing_behind_while_no_broker_answers() -> None:
    """A producer that tries again and again while the mesh is away would hold the payloads of every attempt."""
    stage = Stage()
    stage.step()
    columns: list[weakref.ref[np.ndarray]] = []
    for call in range(1, 1501):
        due, size = np.full(1, 5_000, np.uint64), np.ones(1, np.uint32)
        columns.append(weakref.ref(due))
        stage.core.step([Insert(call, stage.at_us(call), TOPIC, [b"x"], due, size, size)], stage.now)
        del due
        [failed] = of(stage.run_until(call), Failed)
        assert isinstance(failed.error, Disconnected)
        stage.effects.clear()
    assert sum(column() is not None for column in columns) < 20

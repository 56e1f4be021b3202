"""A client's links: how long one without an answer is waited for."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from dueq.client.core import ClientCore
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import CloseLink, Completed, Effect, Failed, OpenLink, Send
from dueq.errors import Unavailable
from dueq_codecs.messages import Code, Hello, HelloReply
from tests.unit.client.stage import Half, Stage, endpoint, hello_reply, of, sent


def test_a_connection_that_does_not_come_about_is_made_anew_after_two_seconds() -> None:
    stage = Stage()
    stage.step()
    first = stage.links[endpoint("a")]
    assert not of(stage.run_until(1_999), CloseLink)
    assert of(stage.run_until(2_000), CloseLink) == [CloseLink(first)]
    assert of(stage.run_until(2_200), OpenLink) == [OpenLink(first + 1, endpoint("a"))]


def test_a_hello_without_an_answer_is_a_connection_that_has_not_come_about() -> None:
    stage = Stage()
    stage.step()
    stage.step(events.LinkReady(stage.links[endpoint("a")]), ms=1_500)
    assert of(stage.run_until(2_000), CloseLink)


def test_who_never_answers_is_waited_for_longer_each_time_up_to_four_seconds() -> None:
    stage = Stage()
    opened = [stage.ms for _ in of(stage.step(), OpenLink)]
    closed: list[float] = []
    while len(closed) < 10:
        assert stage.core.next_deadline_us is not None
        effects = stage.run_until((stage.core.next_deadline_us - stage.at_us(0)) / 1000)
        opened += [stage.ms for _ in of(effects, OpenLink)]
        closed += [stage.ms for _ in of(effects, CloseLink)]
    waits = [round(end - begin) for begin, end in zip(opened, closed, strict=False)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (2_000, 4_000)


def test_who_was_away_for_long_is_found_within_six_seconds_of_coming_back() -> None:
    """A message that falls due meanwhile is late by no more, for a consumer with one broker only."""
    stage = Stage()
    stage.step()
    attempts: list[float] = []
    while stage.ms < 60_000:
        assert stage.core.next_deadline_us is not None
        effects = stage.run_until((stage.core.next_deadline_us - stage.at_us(0)) / 1000)
        attempts += [stage.ms for _ in of(effects, OpenLink)]
    assert max(later - earlier for earlier, later in pairwise(attempts)) <= 6_000


def test_a_link_that_was_up_has_five_seconds_from_its_last_frame() -> None:
    stage = Stage()
    stage.connect()
    assert not of(stage.run_until(4_999), CloseLink)
    assert of(stage.run_until(5_000), CloseLink)


def opened_at(stage: Stage, until_ms: float) -> list[float]:
    """When links are opened, up to this instant."""
    times: list[float] = []
    while (deadline := stage.core.next_deadline_us) is not None and deadline <= stage.at_us(until_ms):
        effects = stage.run_until((deadline - stage.at_us(0)) / 1000)
        times += [stage.ms for _ in of(effects, OpenLink)]
    return times


def lose(stage: Stage, broker: str = "a") -> list[Effect]:
    return stage.step(events.LinkLost(stage.links[endpoint(broker)], "gone"))


def test_a_link_that_was_lost_is_opened_anew_soon_however_often_it_had_failed_before_it_was_up() -> None:
    """A broker that was started late, and is then started anew, is not kept waiting for its first start."""
    stage = Stage()
    stage.step()
    for _ in range(8):
        lose(stage)
        opened_at(stage, stage.ms + 2_100)
    stage.connect()
    lose(stage)
    [again] = opened_at(stage, stage.ms + 150)
    assert again <= stage.ms


def test_who_refuses_a_client_is_not_asked_again_at_once_and_the_error_of_a_call_says_why() -> None:
    """The setting is wrong: the client is of another mesh, or of a build that the broker does not know."""
    stage = Stage()
    stage.step(events.Connect(7, stage.at_us(900)))
    stage.step(events.LinkReady(stage.links[endpoint("a")]))
    effects = stage.receive("a", HelloReply(Code.WRONG_CLUSTER, "this is mesh m"))
    assert of(effects, CloseLink) == [CloseLink(stage.links[endpoint("a")])]
    [failed] = of(effects + stage.run_until(900), Failed)
    assert "this is mesh m" in str(failed.error)
    [again] = opened_at(stage, 2_000)
    assert again >= 1_000


def test_a_broker_that_has_answered_is_greeted_every_two_seconds() -> None:
    """So it is known to live, and mesh time to be right, though nobody asks anything."""
    stage = Stage()
    stage.connect()
    times = []
    while stage.ms < 20_000:
        for hello in sent(stage.run_until(stage.ms + 100), Hello):
            times.append(stage.ms)
            stage.receive("a", hello_reply("a", hello.sent_wall_us, stage.now.wall_us))
    assert len(times) == 10
    assert {later - earlier for earlier, later in pairwise(times)} == {2_000}


def test_the_mesh_of_the_first_broker_that_answers_is_the_one_that_all_are_greeted_for() -> None:
    """A broker of another mesh refuses that: else one name of a topic would be two topics by turns."""
    stage = Stage(["a", "b"])
    stage.step()
    for broker, mesh in (("a", "one"), ("b", "another")):
        [hello] = sent(stage.step(events.LinkReady(stage.links[endpoint(broker)])), Hello)
        stage.receive(
            broker, replace(hello_reply(broker, hello.sent_wall_us, stage.now.wall_us), cluster_id=mesh)
        )
    assert [hello.cluster_id for hello in sent(stage.run_until(2_000), Hello)] == ["one", "one"]


def greet(stage: Stage, until_ms: int, *, known: bool) -> list[Effect]:
    """Let a broker answer greetings for a while that knows the mesh's time, or does not."""
    effects: list[Effect] = []
    while stage.ms < until_ms:
        ran = stage.run_until(stage.ms + 100)
        for hello in sent(ran, Hello):
            ran += stage.receive("a", hello_reply("a", hello.sent_wall_us, stage.now.wall_us if known else 0))
        effects += ran
    return effects


@pytest.mark.parametrize("steady", [False, True])
def test_who_needs_the_time_of_the_mesh_waits_until_a_broker_knows_it(steady: bool) -> None:
    """One that has just started does not. By the client's own clock, "in ten minutes" could be an hour ago."""
    stage = Stage()
    stage.core = ClientCore(b"i" * 16, [endpoint("a")], Half(), steady=steady)
    stage.step(events.Connect(7, stage.at_us(9_000)), events.Connect(8, stage.at_us(9_000), measured=True))
    [hello] = sent(stage.step(events.LinkReady(stage.links[endpoint("a")])), Hello)
    effects = stage.receive("a", hello_reply("a", hello.sent_wall_us, 0))
    assert [done.call for done in of(effects, Completed)] == [7]
    assert of(greet(stage, 3_000, known=False), Completed) == []
    assert [done.call for done in of(greet(stage, 4_000, known=True), Completed)] == [8]
    assert [done.call for done in of(stage.step(events.Connect(9, stage.at_us(9_000), True)), Completed)] == [
        9
    ]


def test_who_waits_in_vain_for_the_time_of_the_mesh_hears_that_nobody_knows_it() -> None:
    stage = Stage()
    stage.step(events.Connect(8, stage.at_us(3_000), measured=True))
    [hello] = sent(stage.step(events.LinkReady(stage.links[endpoint("a")])), Hello)
    stage.receive("a", hello_reply("a", hello.sent_wall_us, 0))
    [failed] = of(greet(stage, 3_500, known=False), Failed)
    assert isinstance(failed.error, Unavailable)
    assert "time" in str(failed.error)


def test_nothing_is_sent_before_a_connection_is_there() -> None:
    stage = Stage()
    assert not of(stage.step() + stage.run_until(30_000), Send)


def test_an_answer_by_a_connection_that_was_given_up_is_none() -> None:
    """A slow broker answers the greeting by the old connection: the new one is not up by that."""
    stage = Stage()
    stage.step()
    old = stage.links[endpoint("a")]
    [hello] = sent(stage.step(events.LinkReady(old)), Hello)
    lose(stage)
    stage.run_until(200)
    assert stage.links[endpoint("a")] != old
    late = events.FrameReceived(old, hello_reply("a", hello.sent_wall_us, stage.now.wall_us), [])
    assert stage.step(late, events.LinkReady(old), events.LinkLost(old, "gone")) == []
    [failed] = of(stage.step(events.Connect(7, stage.at_us(210))) + stage.run_until(210), Failed)
    assert failed.call == 7


def test_a_client_that_is_closed_opens_and_says_nothing_any_more() -> None:
    """One of its links is up, and another one is waited for."""
    stage = Stage(["a", "b"])
    stage.connect("a")
    lose(stage, "b")
    assert of(stage.step(events.Close()), CloseLink) == [CloseLink(stage.links[endpoint("a")])]
    assert stage.run_until(60_000) == []


def test_what_is_learned_of_no_broker_ends_no_link() -> None:
    """An answer that names nobody is one of a broker that does not reach ZooKeeper."""
    stage = Stage()
    stage.connect()
    for brokers in (["a", "b"], []):
        stage.brokers = brokers
        asking = stage.step(events.FetchTopics(8, stage.at_us(stage.ms + 5_000), ""))
        effects = asking + stage.answer_metadata(asking)
        assert of(effects, CloseLink) == []


def test_questions_that_any_broker_can_answer_go_to_all_of_them_in_turn() -> None:
    """Else one broker would answer for all clients that name it first."""
    stage = Stage(["a", "b", "c"])
    stage.connect()
    asked: list[Effect] = []
    for call in range(6):
        asked += stage.step(events.FetchTopics(call, stage.at_us(5_000), ""))
    links = [effect.link for effect in of(asked, Send)]
    assert sorted(links) == sorted(2 * list(stage.links.values()))

"""One consumer's frames to its leaders: to whom, by which link, how often, and what each lists."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dueq.client.core import ClientCore
from dueq.client.core.consuming.holding import LOST_US
from dueq.client.core.consuming.leaders import BEAT_US, UNDER_WAY_US
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Effect, LeaseLost, Send
from dueq_codecs.messages import Code, ConsumerAction, ConsumerFrame, ConsumerReply, MetadataRequest
from dueq_codecs.records import RecordKind
from tests.unit.client.stage import (
    CONSUMER,
    TOPIC,
    Half,
    Stage,
    attached,
    confirm,
    delivered,
    endpoint,
    of,
    sent,
    settle,
)

SOMETHING = ConsumerReply("other", b"o" * 16, 1, 1)
"""Keeps a link alive."""


def ways(effects: list[Effect]) -> list[tuple[str, ConsumerAction, int]]:
    """Of each frame to a leader: to whom, what, and by which link."""
    return [
        (effect.message.leader, effect.message.action, effect.link)
        for effect in of(effects, Send)
        if isinstance(effect.message, ConsumerFrame)
    ]


def forgotten(frame: ConsumerFrame) -> ConsumerReply:
    """The leader knows nothing of the session."""
    code = Code.UNKNOWN_SESSION
    return ConsumerReply(TOPIC, CONSUMER, frame.attach, frame.number, code, leader=frame.leader)


def test_for_partitions_that_nobody_leads_no_frame_is_sent_and_no_credit_kept() -> None:
    frames = attached(Stage(["a"], {1: "a", 2: ""}), credit=8)
    assert {leader: frame.credit for leader, frame in frames.items()} == {"a": 8}


def test_a_leader_out_of_reach_is_spoken_to_through_the_same_broker_all_the_time() -> None:
    """By each other way it would hear an attach, and push again what it has pushed."""
    stage = Stage(["a", "b", "c"], {1: "c"})
    stage.connect("a", "b")
    effects = stage.consume()
    while stage.ms < 12_000:
        for frame in sent(effects, ConsumerFrame):
            stage.receive("a", confirm(frame))
        effects = stage.run_until(stage.ms + 100)
        stage.answer_metadata(effects)
        for broker in ("a", "b"):
            stage.receive(broker, SOMETHING)
    spoken = ways(stage.effects)
    assert len(spoken) > 3
    assert len({link for _, _, link in spoken}) == 1
    assert [action for _, action, _ in spoken].count(ConsumerAction.ATTACH) == 1


def test_the_end_of_a_link_has_only_those_attached_anew_that_were_reached_by_it() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    attached(stage)
    effects = stage.step(events.LinkLost(stage.links[endpoint("a")], "gone"))
    assert ways(effects) == [("a", ConsumerAction.ATTACH, stage.links[endpoint("b")])]


def test_the_end_of_the_link_to_a_leader_has_it_asked_at_once_who_leads() -> None:
    """The leader may have died, and another one lead by now."""
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    attached(stage)
    stage.answer_metadata(stage.run_until(60))
    stage.run_until(500)
    assert sent(stage.step(events.LinkLost(stage.links[endpoint("a")], "gone")), MetadataRequest)


def test_who_closes_attaches_nowhere_any_more() -> None:
    """It would be given messages that nobody handles."""
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    settle(stage, RecordKind.ACK, delivery)
    stage.step(events.CloseConsumer(9, stage.at_us(60_000), CONSUMER, []))
    effects = stage.step(events.LinkLost(stage.links[endpoint("a")], "gone")) + stage.run_until(1_000)
    effects += stage.connect() + stage.run_until(3_000)
    assert ConsumerAction.ATTACH not in [action for _, action, _ in ways(effects)]


def test_an_attach_that_followed_a_hurried_refusal_is_repeated_no_sooner_than_others() -> None:
    stage = Stage()
    stage.connect()
    [frame] = sent(stage.consume(), ConsumerFrame)
    stage.receive("a", forgotten(frame))
    stage.run_until(150)
    assert len(ways(stage.effects)) == 2
    assert ways(stage.run_until(1_000)) == []
    assert len(ways(stage.run_until(1_200))) == 1


def test_who_reaches_no_broker_does_not_look_for_one_all_the_time() -> None:
    stage = Stage()
    attached(stage)
    stage.step(events.LinkLost(stage.links[endpoint("a")], "gone"))
    steps = 0
    while (deadline := stage.core.next_deadline_us) is not None and deadline <= stage.at_us(10_000):
        stage.run_until((deadline - stage.at_us(0)) / 1000)
        steps += 1
    assert steps < 100


def test_a_frame_without_an_answer_is_sent_again_a_second_later() -> None:
    stage = Stage()
    attached(stage)
    [beat] = sent(stage.run_until(2_600), ConsumerFrame)
    assert sent(stage.run_until(3_400), ConsumerFrame) == []
    [again] = sent(stage.run_until(3_600), ConsumerFrame)
    assert (again.action, again.number) == (ConsumerAction.BEAT, beat.number + 1)


def test_a_leader_that_has_sent_what_has_not_come_hears_a_second_later_what_has() -> None:
    """It sends a push again that got lost only when it hears that: the message would wait for the next beat."""
    stage = Stage()
    stage.connect()
    [attach] = sent(stage.consume(), ConsumerFrame)
    stage.receive("a", confirm(attach, push_sent=1))
    [beat] = sent(stage.run_until(1_100), ConsumerFrame)
    assert (beat.action, beat.push_seen) == (ConsumerAction.BEAT, 0)


def test_a_frame_without_an_answer_has_it_asked_who_leads() -> None:
    """The leader may have died, and its link not have noticed yet."""
    stage = Stage()
    attached(stage)
    for ms in (60, 2_100, 3_400):
        stage.answer_metadata(stage.run_until(ms))
    effects = stage.run_until(3_600)
    assert [frame.action for frame in sent(effects, ConsumerFrame)] == [ConsumerAction.BEAT]
    assert sent(effects, MetadataRequest)


def test_each_frame_says_which_life_of_its_name_it_is_from() -> None:
    """A leader that does not hear it takes the frame for one of a consumer without a name."""
    stage = Stage()
    attached(stage, life=70)
    stage.run_until(2_600)
    effects = stage.step(events.CloseConsumer(9, stage.at_us(60_000), CONSUMER, []))
    frames = sent(stage.effects, ConsumerFrame)
    assert {frame.action for frame in frames} >= {ConsumerAction.BEAT, ConsumerAction.GOODBYE}
    assert {frame.life for frame in frames} == {70}
    assert effects


@pytest.mark.parametrize("detached", [False, True], ids=["plain", "detached"])
def test_what_is_held_is_listed_by_an_attach_and_in_no_beat(detached: bool) -> None:
    """A list of all leases takes a leader as long as the messages did."""
    stage = Stage()
    frames = attached(stage, detached=detached)
    delivered(stage, "a", b"x", b"y", left_ms=60_000)
    [beat] = sent(stage.run_until(2_600), ConsumerFrame)
    assert (beat.action, len(beat.held_token)) == (ConsumerAction.BEAT, 0)
    [attach] = sent(stage.receive("a", forgotten(beat)), ConsumerFrame)
    assert attach.attach == frames["a"].attach + 1
    assert attach.held_uid.tolist() == [1, 1]
    assert (attach.held_sequence.tolist(), attach.held_row.tolist()) == ([50, 50], [0, 1])
    assert attach.held_token.tolist() == [60, 60]


def test_the_goodbye_of_a_consumer_whose_leases_end_with_it_lists_none() -> None:
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    delivery.handed = True
    effects = stage.step(events.CloseConsumer(9, stage.at_us(60_000), CONSUMER, []))
    [goodbye] = sent(effects, ConsumerFrame)
    assert (goodbye.action, len(goodbye.held_token)) == (ConsumerAction.GOODBYE, 0)


@pytest.mark.parametrize(
    ("options", "aside"),
    [({}, 0), ({"life": 70}, 1), ({"detached": True}, 1)],
    ids=["plain", "named", "detached"],
)
def test_a_leader_that_was_silent_is_not_asked_about_what_is_being_settled(
    options: dict[str, int], aside: int
) -> None:
    """It does not answer who states what another leads by now. Where leaving it out could end it, it is aside."""
    stage = Stage()
    first = attached(stage, **options)["a"]
    [delivery] = delivered(stage, "a", b"x", attach=first.attach, left_ms=600_000)
    settle(stage, RecordKind.ACK, delivery)
    early = sent(stage.run_until(2_600), ConsumerFrame)[-1]
    [attach] = sent(stage.receive("a", forgotten(early)), ConsumerFrame)
    assert (attach.held_token.tolist(), attach.aside) == ([delivery.token], 0)
    while stage.ms < 9_000:
        stage.receive("a", SOMETHING)
        stage.run_until(stage.ms + 500)
    late = sent(stage.effects, ConsumerFrame)[-1]
    assert (late.action, late.credit) == (ConsumerAction.ATTACH, 0)
    assert (late.held_token.tolist(), late.aside) == ([delivery.token] * aside, aside)


def test_a_leader_that_was_silent_hears_that_leases_were_given_up() -> None:
    """By a beat it would hear that its consumer lives, and would keep them to their ends."""
    stage = Stage()
    attached(stage)
    delivered(stage, "a", b"x", left_ms=600_000)
    frames: list[ConsumerFrame] = []
    while stage.ms < 8_000:
        stage.receive("a", SOMETHING)
        frames += sent(stage.run_until(stage.ms + 500), ConsumerFrame)
    assert {frame.action for frame in frames[:-1]} == {ConsumerAction.BEAT}
    assert (frames[-1].action, len(frames[-1].held_token)) == (ConsumerAction.ATTACH, 0)


def test_what_another_leads_is_listed_behind_what_is_asked_about() -> None:
    """The leader takes the last ones for those aside. It does not answer who states as plain what another leads."""
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    first = attached(stage, life=70)
    delivered(stage, "b", b"x", attach=first["b"].attach, uid=2, token=61, left_ms=600_000)
    delivered(stage, "a", b"y", attach=first["a"].attach, uid=1, token=60, left_ms=600_000)
    effects = stage.receive("a", forgotten(first["a"])) + stage.run_until(stage.ms + 2_000)
    attach = next(frame for frame in sent(effects, ConsumerFrame) if frame.attach > first["a"].attach)
    assert (attach.leader, attach.held_token.tolist(), attach.aside) == ("a", [60, 61], 1)


def test_where_nothing_gets_lost_a_leader_hears_just_often_enough_not_to_give_the_leases_up() -> None:
    stage = Stage()
    stage.core = ClientCore(b"i" * 16, [endpoint("a")], Half(), steady=True)
    attached(stage)
    delivered(stage, "a", b"x", left_ms=60_000)
    spoken: list[float] = [0.0]
    while stage.ms < 30_000:
        for frame in sent(stage.run_until(stage.ms + 50), ConsumerFrame):
            spoken.append(stage.ms)
            stage.receive("a", confirm(frame))
    assert min(later - earlier for earlier, later in pairwise(spoken)) > 2 * BEAT_US / 1000
    assert of(stage.effects, LeaseLost) == []


def after_news(stage: Stage, leaders: dict[int, str], epoch: int) -> list[tuple[str, ConsumerAction]]:
    """Frames that follow news of who leads in which epoch."""
    stage.answer_metadata(stage.run_until(60))
    stage.leaders, stage.epoch = leaders, epoch
    effects = stage.answer_metadata(stage.run_until(2_100))
    return [(leader, action) for leader, action, _ in ways(effects)]


def test_who_leads_the_same_partition_anew_is_attached_at_anew() -> None:
    """It may have been started anew meanwhile, and knows nothing of what is held."""
    stage = Stage()
    attached(stage)
    assert after_news(stage, {1: "a"}, epoch=2) == [("a", ConsumerAction.ATTACH)]


def test_a_leader_is_not_attached_at_anew_since_it_leads_one_partition_less() -> None:
    """It would push again all that was not seen, and list what is held."""
    stage = Stage(["a", "b"], {1: "a", 2: "a"})
    attached(stage)
    told = after_news(stage, {1: "a", 2: "b"}, epoch=1)
    assert [leader for leader, action in told if action is ConsumerAction.ATTACH] == ["b"]


def test_each_frame_says_how_long_leases_shall_be_and_how_many_bytes_may_come() -> None:
    stage = Stage()
    attached(stage, lease_ms=7_000)
    stage.run_until(2_600)
    frames = sent(stage.effects, ConsumerFrame)
    assert [frame.action for frame in frames] == [ConsumerAction.ATTACH, ConsumerAction.BEAT]
    assert {(frame.lease_ms, frame.credit_bytes) for frame in frames} == {(7_000, 64 << 20)}


# -------------------------------------------------------------- what detached leases take


def told_to_b(stage: Stage, until_ms: float) -> list[int]:
    """The credit of each frame to leader b, which always wants more; leader a says nothing."""
    stated = []
    while stage.ms < until_ms:
        effects = stage.run_until(stage.ms + 100)
        frames = sent(effects + stage.answer_metadata(effects), ConsumerFrame)
        while frames:
            frame = frames.pop(0)
            if frame.leader == "b":
                stated.append(frame.credit)
                frames += sent(stage.receive("b", confirm(frame, waiting=100)), ConsumerFrame)
    return stated


@pytest.mark.parametrize(("detached", "most"), [(False, 8), (True, 5)], ids=["plain", "detached"])
def test_leases_of_a_partition_that_nobody_leads_take_credit_if_they_stay_held(
    detached: bool, most: int
) -> None:
    """The user would have more than he has asked for: these leases outlive their leader."""
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    attached(stage, detached=detached, credit=8)
    delivered(stage, "a", b"x", b"y", b"z", left_ms=60_000)
    stage.leaders, stage.epoch = {1: "", 2: "b"}, 2
    assert max(told_to_b(stage, 6_000)) == most


@pytest.mark.parametrize("detached", [False, True], ids=["plain", "detached"])
def test_credit_that_may_be_on_its_way_to_a_silent_leader_counts_though_nothing_is_held_of_it(
    detached: bool,
) -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    attached(stage, detached=detached, credit=8)
    assert max(told_to_b(stage, (LOST_US + UNDER_WAY_US // 2) / 1000)) == 4
    assert max(told_to_b(stage, 30_000)) == 8


def test_more_leases_than_credit_at_a_silent_leader_leave_the_others_nothing() -> None:
    """No frame can state less than that."""
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage, detached=True, credit=2)
    delivered(stage, "a", *[b"x"] * 5, attach=frames["a"].attach, left_ms=60_000)
    delivered(stage, "b", b"y", attach=frames["b"].attach, uid=2, left_ms=60_000)
    told = told_to_b(stage, 12_000)
    assert (min(told), told[-1]) == (0, 0)


def test_who_closes_gives_no_credit_to_who_has_messages_waiting() -> None:
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    settle(stage, RecordKind.ACK, delivery)
    [last] = sent(stage.step(events.CloseConsumer(9, stage.at_us(60_000), CONSUMER, [])), ConsumerFrame)
    assert last.credit == 0
    later = stage.receive("a", confirm(last, waiting=100)) + stage.run_until(4_000)
    assert {frame.credit for frame in sent(later, ConsumerFrame)} <= {0}

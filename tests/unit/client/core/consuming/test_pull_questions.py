"""What the questions of pulls say, and what the caller hears where no leader can serve him."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed, Effect, Failed
from dueq.errors import Busy, NotAllowed
from dueq_codecs.messages import ChangeRequest, Code, ConsumerFrame, MetadataRequest, Reply
from dueq_codecs.records import RecordKind
from tests.unit.client.core.consuming.test_pulling import (
    CALL,
    answer,
    bring,
    confirm,
    end,
    lists,
    live,
    long_pull,
    next_lists,
    pull,
    pulls_in,
    staged,
)
from tests.unit.client.stage import TOPIC, Stage, endpoint, of, push, sent


def test_a_question_says_how_long_leases_shall_be_and_how_many_bytes_may_come() -> None:
    stage = staged("a")
    asking = stage.step(events.Pull(CALL, stage.at_us(5_000), TOPIC, 3, 0, 7_000, 1 << 20, b"", []))
    [frame] = sent(asking + stage.answer_metadata(asking), ConsumerFrame)
    assert (frame.credit, frame.lease_ms, frame.credit_bytes) == (3, 7_000, 1 << 20)


def test_where_leaders_only_refuse_the_caller_hears_their_refusal_in_the_end() -> None:
    """That nobody could be reached would be wrong."""
    stage = staged("a")
    frame = pull(stage, wait_ms=500, timeout_ms=1_000)
    effects: list[Effect] = []
    while not of(effects, Failed):
        assert not of(effects, Completed)
        more = stage.receive("a", end(frame, code=Code.BUSY))
        while not (asked := pulls_in(more)) and not of(more, Failed):
            found = stage.run_until(stage.ms + 20)
            more += found + stage.answer_metadata(found)
        frame = asked[-1] if asked else frame
        effects += more
    [failed] = of(effects, Failed)
    assert isinstance(failed.error, Busy)


def test_a_damaged_message_is_no_answer_and_does_not_come_back_at_once() -> None:
    stage = staged("a")
    frame = pull(stage)
    message, body = push("a", frame.attach, 1, [b"good", b"evil"], consumer_id=frame.consumer_id)
    effects = stage.receive("a", message, body.replace(b"evil", b"EVIL"))
    effects += stage.run_until(stage.ms + 5)
    [request] = sent(effects, ChangeRequest)
    assert (request.kind, request.target_row.tolist()) == (RecordKind.NACK, [1])
    assert request.amount_ms.tolist() == [1_000]
    assert answer(stage.receive("a", end(frame, pushes=1))) == [b"good"]


def test_more_pulls_than_a_frame_may_list_are_listed_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are left out would be ended by the leader."""
    monkeypatch.setattr(limits, "PULLS_MAX", 2)
    stage = staged("a")
    names = [long_pull(stage, call=call).consumer_id for call in range(1, 6)]
    listed, _ = next_lists(stage)
    assert [len(frame.pull_attach) for frame in listed] == [2, 2, 1]
    assert b"".join(frame.pulls for frame in listed) == b"".join(names)
    assert len({frame.number for frame in listed}) == 3


def lists_answered(stage: Stage, ms: float) -> int:
    """Let time pass; the leader says of all that is asked that it waits. Returns how many lists it got."""
    count = 0
    until_ms = stage.ms + ms
    while stage.ms < until_ms:
        effects = live(stage, 500)
        for frame in pulls_in(effects):
            stage.receive(frame.leader, end(frame, ended=False))
        for frame in lists(effects):
            count += 1
            confirm(stage, frame)
    return count


def test_after_trouble_is_over_leaders_are_asked_as_seldom_as_before() -> None:
    stage = staged("a")
    frame = long_pull(stage)
    assert lists_answered(stage, 10_000) == 2
    stage.receive("a", end(frame, code=Code.BUSY))
    assert lists_answered(stage, 10_000) > 2
    lists_answered(stage, 10_000)
    assert lists_answered(stage, 10_000) == 2


def test_after_a_link_was_lost_leaders_are_told_sooner_that_a_pull_waits() -> None:
    """The leader may have died with it, and another one lead soon."""
    stage = staged("a", "b")
    stage.leaders = {1: "a", 2: "a"}
    long_pull(stage)
    [again] = pulls_in(stage.step(events.LinkLost(stage.links[endpoint("a")], "gone")))
    stage.receive("b", end(again, ended=False))
    assert len(lists(live(stage, 3_000))) == 1


def test_of_a_topic_in_which_nobody_waits_any_more_nothing_is_asked() -> None:
    stage = staged("a")
    frame = long_pull(stage)
    bring(stage, frame, b"x")
    stage.receive("a", end(frame, pushes=1))
    effects = live(stage, 45_000)
    assert (sent(effects, ConsumerFrame), sent(effects, MetadataRequest)) == ([], [])


def test_what_comes_seconds_after_a_pull_is_over_goes_back() -> None:
    """It had left before the goodbye came. Kept by nobody, it would be away for its whole lease."""
    stage = staged("a")
    frame = pull(stage, wait_ms=5_000)
    stage.step(events.Abandon(CALL))
    live(stage, 3_000)
    [request] = sent(bring(stage, frame, b"x") + stage.run_until(stage.ms + 5), ChangeRequest)
    assert (request.kind, request.rows) == (RecordKind.RELEASE, 1)


def test_who_may_not_ask_about_a_topic_hears_so_at_once() -> None:
    """No broker will tell him anything else: he would wait in vain until his time is over."""
    stage = staged("a")
    asking = stage.step(events.Pull(CALL, stage.at_us(5_000), TOPIC, 3, 0, 7_000, 1 << 20, b"", []))
    [question] = sent(asking, MetadataRequest)
    [failed] = of(stage.receive("a", Reply(question.request_id, Code.NOT_ALLOWED, "it is not yours")), Failed)
    assert (failed.call, str(failed.error)) == (CALL, "it is not yours")
    assert isinstance(failed.error, NotAllowed)


def test_a_leader_that_is_asked_for_a_missing_push_is_not_told_that_the_pull_waits() -> None:
    """It would say that it knows of none that does, and be asked again for what is on its way."""
    stage = staged("a")
    frame = long_pull(stage)
    live(stage, 4_500)
    bring(stage, frame, b"x")
    [again] = pulls_in(stage.receive("a", end(frame, pushes=2)) + stage.run_until(stage.ms + 60))
    assert again.wait_ms == 0
    assert lists(stage.run_until(stage.ms + 1_000)) == []


def troubled() -> tuple[Stage, ConsumerFrame, ConsumerFrame]:
    """A pull waits at two leaders, which were told so once, and then the link to b is lost; returns what a was told."""
    stage = staged("a", "b")
    first = pull(stage, wait_ms=60_000, timeout_ms=70_000)
    [second] = pulls_in(stage.receive(first.leader, end(first)))
    asked = pulls_in(stage.receive(second.leader, end(second)))
    for frame in asked:
        stage.receive(frame.leader, end(frame, ended=False))
    listed, _ = next_lists(stage)
    stage.step(events.LinkLost(stage.links[endpoint("b")], "gone"))
    [question], [told] = ([frame for frame in frames if frame.leader == "a"] for frames in (asked, listed))
    return stage, question, told


def test_a_list_that_was_sent_before_the_question_was_put_anew_says_nothing_of_it() -> None:
    stage, first, listed = troubled()
    stage.run_until(stage.ms + 300)
    stage.connect("b")
    asked = pulls_in(stage.step(events.LinkLost(stage.links[endpoint("a")], "gone")))
    assert [frame.attach > first.attach for frame in asked if frame.leader == "a"] == [True]
    stage.run_until(stage.ms + 300)
    stage.connect("a")
    assert not pulls_in(confirm(stage, listed, 0))


def test_an_answer_to_a_list_that_others_have_followed_for_long_says_nothing() -> None:
    """All lists that nobody answers would be kept for it, and the pulls that were in them."""
    stage, _, listed = troubled()
    for _ in range(2):
        for frame in lists(live(stage, 2_500)):
            confirm(stage, frame)
    assert not pulls_in(confirm(stage, listed, 0))


def test_how_much_came_for_a_question_is_not_said_by_the_end_of_one_before_it() -> None:
    """A part of what the leader has given would be taken for all of it."""
    stage = staged("a")
    first = pull(stage, count=2, wait_ms=5_000)
    second, third = (pulls_in(stage.run_until(stage.ms + 1_100))[0] for _ in range(2))
    assert first.attach < second.attach < third.attach
    bring(stage, second, b"x")
    assert not of(stage.receive("a", end(first, pushes=1)), Completed)
    bring(stage, second, b"y", number=2, sequence=51)
    assert answer(stage.receive("a", end(second, pushes=2))) == [b"x", b"y"]

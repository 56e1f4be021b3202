"""Pulls of the session machine: whom they ask, in which order, and what becomes of what comes."""

from __future__ import annotations

import dataclasses
import gc

import numpy as np
import pytest

from dueq.client.core.ports import events
from dueq.client.core.ports.change import Part
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.effects import Completed, Effect, Failed
from dueq.errors import Disconnected, InvalidRequest, Superseded, TopicNotFound
from dueq_codecs.messages import (
    ChangeRequest,
    Code,
    ConsumerAction,
    ConsumerFrame,
    ConsumerReply,
    MetadataReply,
    MetadataRequest,
)
from dueq_codecs.records import RecordKind
from tests.unit.client.stage import TOPIC, Half, Stage, of, ok, push, sent

CALL = 7
LIFE = 5


def staged(*leaders: str) -> Stage:
    """A client that knows a topic whose partitions these brokers lead."""
    stage = Stage(leaders, dict(enumerate(leaders, 1)))
    stage.connect()
    return stage


def pull(
    stage: Stage, count: int = 10, wait_ms: int = 0, timeout_ms: float = 10_000, call: int = CALL
) -> ConsumerFrame:
    """Begin a pull; returns the first question."""
    at_us = stage.at_us(stage.ms + timeout_ms)
    effects = stage.step(events.Pull(call, at_us, TOPIC, count, wait_ms * 1000, 30_000, 1 << 20, b"", []))
    return sent(effects + stage.answer_metadata(effects), ConsumerFrame)[0]


def other_of(stage: Stage, frame: ConsumerFrame) -> str:
    return next(broker for broker in stage.brokers if broker != frame.leader)


def end(frame: ConsumerFrame, pushes: int = 0, code: Code = Code.OK, *, ended: bool = True) -> ConsumerReply:
    return ConsumerReply(
        TOPIC, frame.consumer_id, frame.attach, frame.number, code, "", leader=frame.leader,
        push_sent=pushes, ended=ended,
    )  # fmt: skip


def bring(
    stage: Stage,
    frame: ConsumerFrame,
    *payloads: bytes,
    number: int = 1,
    sequence: int = 50,
    left_ms: int = 30_000,
) -> list[Effect]:
    uid = next(uid for uid, leader in stage.leaders.items() if leader == frame.leader)
    message, body = push(
        frame.leader,
        frame.attach,
        number,
        payloads,
        uid=uid,
        consumer_id=frame.consumer_id,
        sequence=sequence,
        left_ms=left_ms,
        life=LIFE,
        mono_us=int(stage.ms * 1000),
    )
    return stage.receive(frame.leader, message, body)


def answer(effects: list[Effect]) -> list[bytes]:
    """The payloads of a pull that is over."""
    [done] = of(effects, Completed)
    deliveries: list[Delivery] = done.value
    return [bytes(delivery.payload) for delivery in deliveries]


def test_the_leader_is_asked_and_its_pushes_are_the_answer() -> None:
    stage = staged("a")
    frame = pull(stage, count=2, wait_ms=3_000)
    assert (frame.action, frame.credit, frame.wait_ms) == (ConsumerAction.PULL, 2, 3_000)
    assert frame.holder == frame.consumer_id
    assert not of(bring(stage, frame, b"x", b"y"), Completed)
    effects = stage.receive("a", end(frame, pushes=1))
    assert answer(effects) == [b"x", b"y"]


def test_what_comes_when_its_lease_is_over_goes_back_and_the_leader_is_asked_anew() -> None:
    """It was held up on its way: by now another may have it."""
    stage = staged("a")
    frame = pull(stage, wait_ms=60_000, timeout_ms=90_000)
    stage.ms += 30_001  # of a lease of 30 s
    late = bring(stage, frame, b"x") + stage.receive("a", end(frame, pushes=1))
    assert not of(late, Completed)
    [again] = [found for found in sent(late, ConsumerFrame) if found.action is ConsumerAction.PULL]
    assert (again.credit, again.held_sequence.tolist()) == (10, [50])
    [released] = sent(late + stage.run_until(stage.ms + 5), ChangeRequest)
    assert (released.kind, released.rows) == (RecordKind.RELEASE, 1)


def test_what_was_given_back_is_forgotten_once_that_is_confirmed() -> None:
    """Long polls that end as their messages come give back many: each held 15 minutes of memory."""
    stage = staged("a")
    gc.collect()
    before = sum(type(found) is Part for found in gc.get_objects())
    for call in range(100, 150):
        frame = pull(stage, call=call)
        stage.step(events.Abandon(call))
        effects = bring(stage, frame, b"x", sequence=call) + stage.run_until(stage.ms + 5)
        [released] = sent(effects, ChangeRequest)
        stage.receive("a", ok(released, 1_000 + call, outcomes=[0]))
    stage.run_until(stage.ms + 20_000)
    stage.effects.clear()
    gc.collect()
    assert sum(type(found) is Part for found in gc.get_objects()) - before < 5


def test_what_is_over_when_the_call_ends_is_not_its_answer() -> None:
    stage = staged("a", "b")
    frame = pull(stage, wait_ms=4_000, timeout_ms=40_000)
    stage.receive(frame.leader, end(frame, ended=False))
    bring(stage, frame, b"x")  # whose end is lost
    stage.ms += 30_001
    assert answer(stage.run_until(45_000)) == []


def test_of_two_leaders_one_is_asked_after_the_other_and_then_both_wait() -> None:
    stage = staged("a", "b")
    first = pull(stage, wait_ms=4_000)
    assert first.wait_ms == 0
    [second] = sent(stage.receive(first.leader, end(first)), ConsumerFrame)
    assert (second.leader, second.wait_ms) == (other_of(stage, first), 0)
    waiting = sent(stage.receive(second.leader, end(second)), ConsumerFrame)
    assert {frame.leader for frame in waiting} == {"a", "b"}
    assert all(0 < frame.wait_ms <= 4_000 for frame in waiting)
    one, other = waiting
    bring(stage, one, b"x")
    effects = stage.receive(one.leader, end(one, pushes=1))
    assert answer(effects) == [b"x"]
    [goodbye] = sent(effects, ConsumerFrame)
    assert (goodbye.action, goodbye.leader) == (ConsumerAction.GOODBYE, other.leader)
    late = bring(stage, other, b"too late", sequence=70) + stage.run_until(stage.ms + 50)
    [released] = sent(late, ChangeRequest)
    assert (released.kind, released.rows) == (RecordKind.RELEASE, 1)


def test_the_first_that_has_something_ends_the_call() -> None:
    stage = staged("a", "b")
    first = pull(stage, wait_ms=4_000)
    bring(stage, first, b"x")
    assert answer(stage.receive(first.leader, end(first, pushes=1))) == [b"x"]


def test_nothing_is_an_answer_too() -> None:
    stage = staged("a", "b")
    first = pull(stage)
    [second] = sent(stage.receive(first.leader, end(first)), ConsumerFrame)
    assert answer(stage.receive(second.leader, end(second))) == []


def test_missing_pushes_are_asked_for_with_what_has_arrived() -> None:
    stage = staged("a")
    frame = pull(stage)
    bring(stage, frame, b"x")
    assert not of(stage.receive("a", end(frame, pushes=2)), Completed)
    [again] = sent(stage.run_until(stage.ms + 60), ConsumerFrame)
    assert again.attach > frame.attach
    assert (again.credit, again.held_row.tolist(), again.held_token.tolist()) == (0, [0], [60])
    bring(stage, again, b"y", sequence=51)
    assert answer(stage.receive("a", end(again, pushes=1))) == [b"x", b"y"]


def test_what_is_too_much_goes_back() -> None:
    stage = staged("a")
    frame = pull(stage, count=1)
    bring(stage, frame, b"x", b"y")
    effects = stage.receive("a", end(frame, pushes=1))
    assert answer(effects) == [b"x"]
    [released] = sent(effects + stage.run_until(stage.ms + 50), ChangeRequest)
    assert (released.kind, released.target_row.tolist()) == (RecordKind.RELEASE, [1])


def test_what_goes_back_is_repeated_while_nobody_answers_that() -> None:
    """A failover takes seconds. Its lease would last on, and the attempt would count."""
    stage = staged("a")
    frame = pull(stage, count=1)
    bring(stage, frame, b"x", b"y")
    stage.receive("a", end(frame, pushes=1))
    stage.run_until(stage.ms + 1_000)
    [again] = sent(stage.run_until(stage.ms + 2_000), ChangeRequest)
    assert (again.kind, again.target_row.tolist()) == (RecordKind.RELEASE, [1])


def test_a_silent_leader_is_asked_again() -> None:
    stage = staged("a")
    frame = pull(stage, wait_ms=5_000)
    again = sent(stage.run_until(1_100), ConsumerFrame)[-1]
    assert again.attach > frame.attach
    assert again.wait_ms < frame.wait_ms


@pytest.mark.parametrize("moved", [False, True])
def test_a_silent_leader_keeps_the_pull_from_no_other(moved: bool) -> None:
    """It has died; `moved`: another broker leads all that it had, and the client does not know yet."""
    stage = staged("a", "b")
    if moved:
        stage.leaders = {1: "a", 2: "a"}
    first = pull(stage, wait_ms=60_000, timeout_ms=90_000)
    if moved:
        stage.leaders = {1: "b", 2: "b"}
    effects: list[Effect] = []
    while stage.ms < 2_500:
        found = stage.run_until(stage.ms + 100)
        effects += found + stage.answer_metadata(found)
    other = next(frame for frame in sent(effects, ConsumerFrame) if frame.leader != first.leader)
    assert other.wait_ms > 0
    bring(stage, other, b"x")
    assert answer(stage.receive(other.leader, end(other, pushes=1))) == [b"x"]


def test_nobody_answers_in_time() -> None:
    stage = staged("a")
    pull(stage, timeout_ms=3_000)
    [failed] = of(stage.run_until(3_100), Failed)
    assert isinstance(failed.error, Disconnected)


def test_who_only_waits_in_vain_gets_nothing_at_the_deadline() -> None:
    stage = staged("a")
    frame = pull(stage, wait_ms=5_000, timeout_ms=2_000)
    stage.receive("a", end(frame, ended=False))
    assert answer(stage.run_until(2_100)) == []


def test_refusals() -> None:
    for code, error in ((Code.UNKNOWN_SESSION, Superseded), (Code.INVALID_REQUEST, InvalidRequest)):
        stage = staged("a")
        frame = pull(stage)
        [failed] = of(stage.receive("a", end(frame, code=code)), Failed)
        assert isinstance(failed.error, error)


def test_another_leader_is_looked_for() -> None:
    stage = staged("a", "b")
    stage.leaders = {1: "a", 2: "a"}
    frame = pull(stage, wait_ms=5_000)
    assert frame.leader == "a"
    stage.leaders = {1: "b", 2: "b"}
    effects = stage.receive("a", end(frame, code=Code.NOT_LEADER))
    effects += stage.run_until(stage.ms + 200)
    [asked] = sent(stage.answer_metadata(effects), ConsumerFrame)
    assert asked.leader == "b"


def test_a_link_that_breaks_has_it_asked_again() -> None:
    stage = staged("a", "b")
    stage.leaders = {1: "a", 2: "a"}
    frame = pull(stage, wait_ms=5_000)
    effects = stage.step(events.LinkLost(stage.links["tcp://a:7400"], "gone"))
    [again] = sent(effects, ConsumerFrame)  # by the broker that is left
    assert (again.leader, again.consumer_id) == ("a", frame.consumer_id)


def test_a_call_that_is_abandoned_leaves_nothing() -> None:
    stage = staged("a")
    frame = pull(stage, wait_ms=5_000)
    [goodbye] = sent(stage.step(events.Abandon(CALL)), ConsumerFrame)
    assert goodbye.action is ConsumerAction.GOODBYE
    effects = bring(stage, frame, b"x") + stage.run_until(stage.ms + 50)
    assert [request.kind for request in sent(effects, ChangeRequest)] == [RecordKind.RELEASE]
    assert not of(stage.run_until(20_000), Failed)


def test_a_topic_that_is_none() -> None:
    stage = staged("a")
    effects = stage.step(events.Pull(CALL, stage.at_us(5_000), "none", 1, 0, 30_000, 1 << 20, b"", []))
    [asked] = sent(effects, MetadataRequest)
    reply = MetadataReply(asked.request_id, Code.TOPIC_NOT_FOUND, "there is no topic 'none'", (), ())
    [failed] = of(stage.receive("a", reply) + stage.run_until(5_100), Failed)
    assert isinstance(failed.error, TopicNotFound)


def test_a_pull_with_a_name_states_what_it_holds() -> None:
    stage = staged("a")
    at_us = stage.at_us(5_000)
    effects = stage.step(
        events.Pull(CALL, at_us, TOPIC, 1, 0, 30_000, 1 << 20, b"h" * 16, [(1, 50, 0, 60), (1, 51, 2, 61)])
    )
    [frame] = sent(effects + stage.answer_metadata(effects), ConsumerFrame)
    assert frame.holder == b"h" * 16
    assert frame.held_sequence.tolist() == [50, 51]
    assert np.array_equal(frame.held_token, [60, 61])


def named(stage: Stage, call: int) -> ConsumerFrame:
    """Begin a pull by name; returns the first question."""
    at_us = stage.at_us(stage.ms + 10_000)
    effects = stage.step(events.Pull(call, at_us, TOPIC, 1, 5_000_000, 30_000, 1 << 20, b"h" * 16, []))
    return sent(effects + stage.answer_metadata(effects), ConsumerFrame)[0]


def test_pulls_of_a_name_say_their_order_in_every_question() -> None:
    stage = staged("a")
    first, second = named(stage, 1), named(stage, 2)
    assert 0 < first.life < second.life
    again = [frame for frame in sent(stage.run_until(1_100), ConsumerFrame) if frame.attach > 1]
    assert {frame.consumer_id: frame.life for frame in again} == {
        first.consumer_id: first.life,
        second.consumer_id: second.life,
    }
    assert pull(staged("a")).life == 0


def test_pulls_of_a_name_follow_each_other_as_they_were_begun_whichever_asks_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While nobody leads, each looks again at an instant of its own; here the last one looks first."""
    chances = iter([0.9, 0.5, 0.1, *[0.5] * 20])
    monkeypatch.setattr(Half, "random", lambda self: next(chances))
    stage = Stage(["a"], {1: ""})
    stage.connect()
    for call in (1, 2, 3):
        pulls = events.Pull(
            call, stage.at_us(9e4), TOPIC, 1, 60_000_000, 30_000, 1 << 20, b"h" * 16, [(1, call, 0, 9)]
        )
        stage.answer_metadata(stage.step(pulls))
    stage.leaders[1] = "a"
    asked: dict[int, int] = {}
    for ms in range(1, 2_000):
        effects = stage.run_until(ms)
        for frame in pulls_in(effects + stage.answer_metadata(effects)):
            asked.setdefault(int(frame.held_sequence[0]), frame.life)
    assert list(asked) == [3, 2, 1]
    assert asked[1] < asked[2] < asked[3]


def test_what_came_to_a_pull_that_another_of_its_name_followed_is_not_given_back() -> None:
    """The other one gets it, under the same token."""
    stage = staged("a")
    frame = named(stage, 1)
    effects = bring(stage, frame, b"x")
    effects += stage.receive("a", end(frame, code=Code.UNKNOWN_SESSION))
    effects += bring(stage, frame, b"y", number=2, sequence=60)
    [failed] = of(effects, Failed)
    assert isinstance(failed.error, Superseded)
    assert sent(effects + stage.run_until(stage.ms + 50), ChangeRequest) == []


# ---------------------------------------------------------------- waiting for long


LONG_MS = 60_000


def long_pull(stage: Stage, call: int = CALL) -> ConsumerFrame:
    """A pull that waits for a minute at its one leader, which has said so."""
    frame = pull(stage, wait_ms=LONG_MS, timeout_ms=LONG_MS + 10_000, call=call)
    stage.receive(frame.leader, end(frame, ended=False))
    return frame


def lists(effects: list[Effect]) -> list[ConsumerFrame]:
    return [frame for frame in sent(effects, ConsumerFrame) if frame.action is ConsumerAction.WAITING]


def pulls_in(effects: list[Effect]) -> list[ConsumerFrame]:
    return [frame for frame in sent(effects, ConsumerFrame) if frame.action is ConsumerAction.PULL]


def confirm(stage: Stage, frame: ConsumerFrame, *over: int, code: Code = Code.OK) -> list[Effect]:
    reply = ConsumerReply(
        TOPIC, frame.consumer_id, frame.attach, frame.number, code, leader=frame.leader,
        over=np.array(over, np.uint32), incarnation=LIFE, mono_us=int(stage.ms * 1000),
    )  # fmt: skip
    return stage.receive(frame.leader, reply)


def next_lists(stage: Stage, ms: float = 5_000) -> tuple[list[ConsumerFrame], list[Effect]]:
    """Let time pass until lists leave, in which the leaders are as they were; returns these, and all that was done."""
    effects = live(stage, ms)
    return lists(effects), effects


def live(stage: Stage, ms: float) -> list[Effect]:
    """Let time pass; the connections live, and who leads is said to who asks."""
    effects: list[Effect] = []
    for _ in range(int(ms / 500)):
        new = stage.run_until(stage.ms + 500)
        effects += new + stage.answer_metadata(new)
        for broker in stage.brokers:
            of_nobody = ConsumerReply(TOPIC, bytes(16), 1, 1, leader=broker)
            effects += stage.receive(broker, of_nobody)
    return effects


def test_a_leader_is_told_of_all_pulls_together_that_they_wait_on() -> None:
    stage = staged("a")
    first, second = long_pull(stage), long_pull(stage, call=8)
    for _ in range(8):
        [frame], effects = next_lists(stage)
        assert frame.pulls == first.consumer_id + second.consumer_id
        assert frame.pull_attach.tolist() == [first.attach, second.attach]
        assert frame.pull_wait_ms.tolist() == [6_500] * 2
        assert not pulls_in(effects)
        assert not pulls_in(confirm(stage, frame))
    bring(stage, first, b"x")
    assert answer(stage.receive("a", end(first, pushes=1))) == [b"x"]
    [frame], _ = next_lists(stage)
    assert frame.pulls == second.consumer_id


def test_a_question_asked_anew_is_repeated_soon_though_the_one_before_was_to_wait_long() -> None:
    """What the leader said of the one before says nothing of this one, which may be lost."""
    stage = staged("a")
    long_pull(stage)
    [frame], _ = next_lists(stage)
    [again] = pulls_in(confirm(stage, frame, 0))
    repeated = pulls_in(live(stage, 3_000))
    assert repeated
    assert repeated[0].attach > again.attach


def test_a_list_says_no_more_than_the_time_that_is_left() -> None:
    stage = staged("a")
    pull_frame = pull(stage, wait_ms=12_000, timeout_ms=20_000)
    stage.receive("a", end(pull_frame, ended=False))
    begun_ms = stage.ms
    for left_ms in (6_500, 2_000):
        [frame], _ = next_lists(stage)
        assert left_ms - 100 <= frame.pull_wait_ms[0] <= left_ms
        confirm(stage, frame)
    live(stage, begun_ms + 12_500 - stage.ms)
    assert answer(stage.receive("a", end(pull_frame))) == []
    assert lists(live(stage, 10_000)) == []


def test_short_pulls_are_not_listed() -> None:
    stage = staged("a")
    frame = pull(stage, wait_ms=6_000)
    stage.receive("a", end(frame, ended=False))
    assert lists(stage.run_until(5_900)) == []


def test_a_pull_that_the_leader_does_not_know_is_asked_again() -> None:
    stage = staged("a")
    first, second = long_pull(stage), long_pull(stage, call=8)
    [frame], _ = next_lists(stage)
    [again] = pulls_in(confirm(stage, frame, 1))
    assert (again.consumer_id, again.attach > second.attach) == (second.consumer_id, True)
    assert 0 < again.wait_ms <= 6_500
    stage.receive("a", end(again, ended=False))
    [frame], _ = next_lists(stage)
    assert frame.pull_attach.tolist() == [first.attach, again.attach]


def test_an_answer_about_an_older_question_changes_nothing() -> None:
    stage = staged("a")
    long_pull(stage)
    [frame], _ = next_lists(stage)
    [again] = pulls_in(confirm(stage, frame, 0))
    assert not sent(confirm(stage, frame, 0), ConsumerFrame)
    assert again.attach == 2


def test_a_leader_that_has_ended_while_others_wait_is_asked_again() -> None:
    stage = staged("a", "b")
    first = pull(stage, wait_ms=LONG_MS, timeout_ms=LONG_MS + 10_000)
    [second] = sent(stage.receive(first.leader, end(first)), ConsumerFrame)
    waiting = sent(stage.receive(second.leader, end(second)), ConsumerFrame)
    for frame in waiting:
        stage.receive(frame.leader, end(frame, ended=False))
    listed, _ = next_lists(stage)
    assert {frame.leader for frame in listed} == {"a", "b"}
    [again] = pulls_in(stage.receive(waiting[0].leader, end(waiting[0])))
    assert (again.leader, again.wait_ms) == (waiting[0].leader, 6_500)


def test_a_leader_that_answers_no_list_is_given_up_as_one_that_answers_no_pull() -> None:
    stage = staged("a")
    frame = long_pull(stage)
    [listed], _ = next_lists(stage)
    confirm(stage, listed)
    until_ms = stage.ms + 6_500
    assert not pulls_in(live(stage, until_ms + 2_500 - stage.ms))
    [again, *_] = pulls_in(live(stage, 1_000))
    assert again.attach > frame.attach


def test_another_leader_is_asked_though_the_first_still_waits() -> None:
    stage = staged("a", "b")
    stage.leaders = {1: "a", 2: "a"}
    frame = long_pull(stage)
    assert frame.leader == "a"
    stage.leaders = {1: "a", 2: "b"}
    for _ in range(4):
        [listed], effects = next_lists(stage)
        effects += confirm(stage, listed)
    [asked] = pulls_in(effects)
    assert asked.leader == "b"
    stage.receive("b", end(asked, ended=False))
    listed_now, effects = next_lists(stage)
    assert {each.leader for each in listed_now} == {"a", "b"}
    assert not pulls_in(effects)


def test_after_a_leader_was_lost_it_is_soon_asked_who_leads() -> None:
    stage = staged("a", "b")
    first = pull(stage, wait_ms=LONG_MS, timeout_ms=LONG_MS + 10_000)
    [second] = sent(stage.receive(first.leader, end(first)), ConsumerFrame)
    one, other = sent(stage.receive(second.leader, end(second)), ConsumerFrame)
    stage.receive(other.leader, end(other, ended=False))
    assert not sent(stage.receive(one.leader, end(one, code=Code.NOT_LEADER)), MetadataRequest)
    effects = live(stage, 3_000)
    assert sent(effects, MetadataRequest)
    [again, *_] = pulls_in(effects)
    assert again.leader == one.leader


def test_a_leader_that_leads_no_more_is_left_out() -> None:
    stage = staged("a", "b")
    stage.leaders = {1: "a", 2: "a"}
    long_pull(stage)
    [listed], _ = next_lists(stage)
    stage.leaders = {1: "b", 2: "b"}
    effects = confirm(stage, listed, code=Code.NOT_LEADER)
    effects += stage.run_until(stage.ms + 200)
    [asked] = pulls_in(effects + stage.answer_metadata(effects))
    assert asked.leader == "b"


def test_what_came_for_an_older_question_is_handed_over_though_others_wait_on() -> None:
    stage = staged("a", "b")
    first = pull(stage, wait_ms=LONG_MS, timeout_ms=LONG_MS + 10_000)
    [second] = sent(stage.receive(first.leader, end(first)), ConsumerFrame)
    one, other = sent(stage.receive(second.leader, end(second)), ConsumerFrame)
    stage.receive(other.leader, end(other, ended=False))
    stage.receive(one.leader, end(one, code=Code.NOT_LEADER))
    bring(stage, one, b"x")
    done: list[Effect] = []
    for _ in range(3):
        listed, effects = next_lists(stage, 1_200)
        done += effects
        for frame in listed:
            done += confirm(stage, frame)
    assert answer(done) == [b"x"]


def asked_twice(stage: Stage) -> tuple[ConsumerFrame, ConsumerFrame]:
    """A question that was repeated after a second of silence, and the repetition."""
    first = pull(stage, count=2, wait_ms=3_000)
    [again] = pulls_in(stage.run_until(stage.ms + 1_100))
    assert again.attach > first.attach
    return first, again


def test_a_whole_answer_to_the_question_before_is_one_too() -> None:
    """It lay with the client for three seconds; meanwhile a pull of the same name could settle what it held."""
    stage = staged("a")
    first, _ = asked_twice(stage)
    assert not of(bring(stage, first, b"x"), Completed)
    assert answer(stage.receive("a", end(first, pushes=1))) == [b"x"]


@pytest.mark.parametrize("ended_first", [True, False])
def test_what_is_missing_of_the_question_before_is_waited_for(ended_first: bool) -> None:
    stage = staged("a")
    first, _ = asked_twice(stage)
    steps = [
        lambda: bring(stage, first, b"x"),
        lambda: bring(stage, first, b"y", number=2, sequence=51),
        lambda: stage.receive("a", end(first, pushes=2)),
    ]
    for step in (steps.pop(), *steps[:-1]) if ended_first else steps[:-1]:
        assert not of(step(), Completed)
    assert answer(steps[-1]()) == [b"x", b"y"]


def test_what_came_before_it_was_asked_again_belongs_to_the_question_before() -> None:
    stage = staged("a")
    first = pull(stage, count=2, wait_ms=3_000)
    bring(stage, first, b"x")
    [again] = pulls_in(stage.run_until(stage.ms + 1_100))
    assert again.held_sequence.tolist() == [50]
    assert answer(stage.receive("a", end(first, pushes=1))) == [b"x"]


def test_a_repeated_push_completes_the_question_before_too() -> None:
    """The present question has brought the message already; its end is lost."""
    stage = staged("a")
    first, again = asked_twice(stage)
    bring(stage, first, b"x")
    bring(stage, again, b"y", sequence=51)
    assert not of(stage.receive("a", end(first, pushes=2)), Completed)
    assert answer(bring(stage, first, b"y", number=2, sequence=51)) == [b"x", b"y"]


def test_nothing_is_no_answer_to_the_question_before() -> None:
    """A part of the present answer has come, and its end has not."""
    stage = staged("a")
    first, again = asked_twice(stage)
    assert not of(stage.receive("a", end(first)), Completed)
    bring(stage, again, b"x")
    assert not of(stage.receive("a", end(first)), Completed)
    bring(stage, again, b"y", number=2, sequence=51)
    assert answer(stage.receive("a", end(again, pushes=2))) == [b"x", b"y"]


def test_what_a_later_pull_of_the_name_may_have_is_not_handed_over() -> None:
    """The leader has brought it back for the later one, and is about to say so to this one."""
    stage = staged("a")
    at_us = stage.at_us(stage.ms + 20_000)
    named = events.Pull(CALL, at_us, TOPIC, 2, 3_000_000, 30_000, 1 << 20, b"n" * 16, [])
    effects = stage.step(named)
    [first] = pulls_in(effects + stage.answer_metadata(effects))
    [_] = pulls_in(stage.run_until(stage.ms + 1_100))
    effects = stage.step(dataclasses.replace(named, call=CALL + 1))
    [later] = pulls_in(effects)
    assert answer([*bring(stage, later, b"x"), *stage.receive("a", end(later, pushes=1))]) == [b"x"]
    effects = [*bring(stage, first, b"x"), *stage.receive("a", end(first, pushes=1))]
    effects += stage.run_until(stage.ms + 3_500)
    assert not of(effects, Completed)


def test_what_came_late_and_whose_lease_is_over_ends_no_call() -> None:
    stage = staged("a")
    at_us = stage.at_us(stage.ms + 20_000)
    effects = stage.step(events.Pull(CALL, at_us, TOPIC, 2, 15_000_000, 2_000, 1 << 20, b"", []))
    [first] = pulls_in(effects + stage.answer_metadata(effects))
    [again] = pulls_in(stage.run_until(stage.ms + 1_100))
    stage.receive("a", end(again, ended=False))
    bring(stage, first, b"x", left_ms=2_000)
    assert not of(stage.run_until(stage.ms + 4_000), Completed)


def test_a_lease_counts_from_the_question_that_it_answers_at_the_latest() -> None:
    """The push was held up for longer than its lease; that the leader was asked again meanwhile makes it no younger."""
    stage = staged("a")
    at_us = stage.at_us(stage.ms + 20_000)
    effects = stage.step(events.Pull(CALL, at_us, TOPIC, 2, 15_000_000, 2_000, 1 << 20, b"", []))
    [first] = pulls_in(effects + stage.answer_metadata(effects))
    pulls_in(stage.run_until(stage.ms + 1_100))
    stage.ms += 1_400
    late = bring(stage, first, b"x", left_ms=2_000) + stage.receive("a", end(first, pushes=1))
    assert not of(late, Completed)
    [released] = sent(late + stage.run_until(stage.ms + 5), ChangeRequest)
    assert (released.kind, released.rows) == (RecordKind.RELEASE, 1)


def test_a_leader_that_has_taken_back_what_was_missing_is_waited_for_again() -> None:
    """Its push could not be sent. The other leader waits all the time."""
    stage = staged("a", "b")
    frame = pull(stage, wait_ms=6_000, timeout_ms=40_000)
    [second] = pulls_in(stage.receive(frame.leader, end(frame)))
    one, other = pulls_in(stage.receive(second.leader, end(second)))
    stage.receive(one.leader, end(one, ended=False))
    stage.receive(other.leader, end(other, ended=False))
    [again] = pulls_in(stage.receive(one.leader, end(one, pushes=1)) + stage.run_until(stage.ms + 60))
    assert (again.leader, again.credit, again.wait_ms) == (one.leader, 0, 0)
    [waits] = pulls_in(stage.receive(again.leader, end(again)))
    assert (waits.leader, waits.credit) == (one.leader, 10)
    assert waits.wait_ms > 5_000


def test_a_question_for_what_is_missing_that_nobody_answers_is_followed_by_one_for_messages() -> None:
    stage = staged("a")
    frame = pull(stage, wait_ms=60_000, timeout_ms=90_000)
    [again] = pulls_in(stage.receive("a", end(frame, pushes=1)) + stage.run_until(stage.ms + 60))
    assert again.credit == 0
    waits = pulls_in(stage.run_until(stage.ms + 1_100))[0]
    assert waits.credit == 10

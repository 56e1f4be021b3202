"""Pulls by one name in one client: whose a message is that comes to one of them."""

from __future__ import annotations

import numpy as np
import pytest

from dueq.client.core.consuming.asked import PullCall
from dueq.client.core.consuming.pull_names import PullNames
from dueq.client.core.ports import events
from dueq.client.core.ports.delivery import Delivery, Pushed
from dueq.client.core.ports.effects import Completed, Effect, Failed
from dueq.errors import InvalidRequest, OutcomeUnknown, Superseded
from dueq.limits import CONSUMER_LEASES_MAX
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code, ConsumerFrame
from dueq_codecs.records import Outcome, RecordKind
from tests.unit.client.core.consuming.test_pulling import LIFE, answer, bring, end, live, pulls_in, staged
from tests.unit.client.stage import TOPIC, Half, Stage, of, ok, push, sent

HOLDER = b"h" * 16


def begin(
    stage: Stage, call: int, *, order: int = 0, wait_ms: int = 5_000, held: list[tuple[int, int, int, int]]
) -> list[Effect]:
    """Begin a pull by the name."""
    at_us = stage.at_us(stage.ms + 10_000)
    effects = stage.step(
        events.Pull(call, at_us, TOPIC, 1, wait_ms * 1000, 30_000, 1 << 20, HOLDER, held, order)
    )
    return effects + stage.answer_metadata(effects)


def asks(stage: Stage, call: int, *, order: int = 0, wait_ms: int = 5_000) -> ConsumerFrame:
    """Begin a pull by the name; returns its first question."""
    return pulls_in(begin(stage, call, order=order, wait_ms=wait_ms, held=[]))[0]


def whole(stage: Stage, frame: ConsumerFrame, payload: bytes, sequence: int = 50) -> list[Effect]:
    """Answer a question with one message."""
    return bring(stage, frame, payload, sequence=sequence) + stage.receive(frame.leader, end(frame, pushes=1))


def by(stage: Stage, leader: str, frame: ConsumerFrame, payload: bytes, token: int = 60) -> list[Effect]:
    """A push of partition 1, whoever leads that now."""
    message, body = push(
        leader, frame.attach, 1, (payload,), uid=1, consumer_id=frame.consumer_id, sequence=50, token=token,
        life=LIFE, mono_us=int(stage.ms * 1000),
    )  # fmt: skip
    return stage.receive(leader, message, body)


def handed(effects: list[Effect]) -> list[bytes]:
    return [bytes(each.payload) for done in of(effects, Completed) for each in done.value]


def both_wait(stage: Stage, call: int, order: int = 0) -> tuple[ConsumerFrame, ConsumerFrame]:
    """A pull that waits at both leaders."""
    first = asks(stage, call, order=order)
    [second] = pulls_in(stage.receive(first.leader, end(first)))
    one, other = pulls_in(stage.receive(second.leader, end(second)))
    return one, other


def moved(stage: Stage) -> None:
    """The client learns that b leads the partition now: a refuses a pull without a name."""
    stage.leaders = {1: "b"}
    at_us = stage.at_us(stage.ms + 20_000)
    [probe] = pulls_in(stage.step(events.Pull(50, at_us, TOPIC, 1, 5_000_000, 30_000, 1 << 20, b"", [])))
    effects = stage.receive("a", end(probe, code=Code.NOT_LEADER)) + stage.run_until(stage.ms + 200)
    stage.answer_metadata(effects)


# ---------------------------------------------------------------- the later one gets it


def test_the_later_one_hands_over_what_the_earlier_one_has_and_had_no_end_of() -> None:
    stage = staged("a")
    first = asks(stage, 1)
    bring(stage, first, b"x")
    effects = begin(stage, 2, held=[])
    assert handed(effects) == [b"x"]
    [failed] = of(effects, Failed)
    assert (failed.call, type(failed.error)) == (1, Superseded)
    effects = whole(stage, first, b"x") + live(stage, 15_000)
    assert handed(effects) == []
    assert sent(effects, ChangeRequest) == []


def test_the_later_one_hands_over_what_comes_to_the_earlier_one() -> None:
    """Its answer was under way as the later one asked, which the leader then brings the same."""
    stage = staged("a")
    first, later = asks(stage, 1), asks(stage, 2)
    assert handed(bring(stage, first, b"x")) == [b"x"]
    [again] = pulls_in(stage.receive("a", end(first, pushes=1)))
    assert again.held_sequence.tolist() == [50]
    [failed] = of(stage.receive("a", end(again, code=Code.UNKNOWN_SESSION)), Failed)
    assert isinstance(failed.error, Superseded)
    effects = whole(stage, later, b"x")
    assert handed(effects) == []
    assert sent(effects + live(stage, 8_000), ChangeRequest) == []


@pytest.mark.parametrize("abandoned", [False, True])
def test_what_the_later_one_has_had_is_nobody_s(abandoned: bool) -> None:
    stage = staged("a")
    first, later = asks(stage, 1), asks(stage, 2)
    if abandoned:
        stage.step(events.Abandon(1))
    assert answer(whole(stage, later, b"x")) == [b"x"]
    effects = whole(stage, first, b"x") + live(stage, 8_000)
    assert handed(effects) == []
    assert sent(effects, ChangeRequest) == []


@pytest.mark.parametrize("abandoned", [False, True])
def test_it_stays_so_when_still_another_one_asks(abandoned: bool) -> None:
    """The orders of a stream's pulls are equal."""
    stage = staged("a")
    assert answer(whole(stage, asks(stage, 1, order=5), b"w", sequence=10)) == [b"w"]
    second = asks(stage, 2, order=5)
    if abandoned:
        stage.step(events.Abandon(2))
    assert answer(whole(stage, asks(stage, 3, order=7), b"x")) == [b"x"]
    asks(stage, 4, order=7)
    effects = whole(stage, second, b"x") + stage.run_until(stage.ms + 50)
    assert handed(effects) == []
    assert sent(effects, ChangeRequest) == []


def test_what_was_under_way_when_a_stream_asks_again_is_not_given_back() -> None:
    """The leader brings it to the next pull, under the token that a RELEASE would end."""
    stage = staged("a", "b")
    one, other = both_wait(stage, 1, order=5)
    assert answer(whole(stage, one, b"w", sequence=40)) == [b"w"]
    following = asks(stage, 2, order=5)
    if following.leader != other.leader:
        [following] = pulls_in(stage.receive(following.leader, end(following)))
    effects = bring(stage, other, b"x", sequence=80) + whole(stage, following, b"x", sequence=80)
    assert handed(effects) == [b"x"]
    assert sent(effects + stage.run_until(stage.ms + 50), ChangeRequest) == []


def test_the_leader_may_have_changed_meanwhile() -> None:
    stage = Stage(["a", "b"], {1: "a"})
    stage.connect()
    first = asks(stage, 1)
    stage.receive("a", end(first, ended=False))
    moved(stage)
    later = asks(stage, 2)
    assert later.leader == "b"
    assert handed(by(stage, "b", later, b"x") + stage.receive("b", end(later, pushes=1))) == [b"x"]
    effects = by(stage, "a", first, b"x") + stage.receive("a", end(first, pushes=1))
    effects += live(stage, 15_000)
    assert handed(effects) == []
    assert sent(effects, ChangeRequest) == []


# ---------------------------------------------------------------- the earlier one keeps it


def test_a_later_one_that_was_refused_leaves_the_earlier_one_what_comes() -> None:
    stage = staged("a")
    first = asks(stage, 1)
    stage.receive("a", end(first, ended=False))
    later = asks(stage, 2)
    [failed] = of(stage.receive("a", end(later, code=Code.INVALID_REQUEST)), Failed)
    assert isinstance(failed.error, InvalidRequest)
    assert handed(whole(stage, first, b"x")) == [b"x"]


def test_an_earlier_one_that_asks_when_the_later_one_is_over_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody leads at first, and the later one looks first who leads."""
    chances = iter([0.9, 0.5])
    monkeypatch.setattr(Half, "random", lambda self: next(chances, 0.5))
    stage = Stage(["a"], {1: ""})
    stage.connect()
    for call in (1, 2):
        begin(stage, call, held=[(1, call, 0, 9)])
    stage.leaders[1] = "a"
    questions: list[ConsumerFrame] = []
    for held, payload in ((2, b"x"), (1, b"y")):
        while not questions:
            effects = stage.run_until(stage.ms + 1)
            questions = pulls_in(effects + stage.answer_metadata(effects))
        assert questions[0].held_sequence.tolist() == [held]
        assert handed(whole(stage, questions.pop(), payload, sequence=60 + held)) == [payload]


def test_one_that_was_over_before_it_asked_is_not_in_the_way() -> None:
    """Nothing is its, as nobody would hand it over."""
    stage = staged("a")
    at_us = stage.at_us(10_000)
    looking_up = stage.step(events.Pull(1, at_us, TOPIC, 1, 5_000_000, 30_000, 1 << 20, HOLDER, [], 9))
    stage.step(events.Abandon(1))
    begin(stage, 2, order=5, held=[])
    [frame] = pulls_in(stage.answer_metadata(looking_up))
    assert handed(whole(stage, frame, b"x")) == [b"x"]


def test_what_comes_when_none_of_them_is_open_is_given_back() -> None:
    """Nobody else would get it as long as its lease lasts."""
    stage = staged("a", "b")
    one, other = both_wait(stage, 1)
    assert answer(whole(stage, one, b"x")) == [b"x"]
    assert answer(whole(stage, asks(stage, 2), b"y", sequence=60)) == [b"y"]
    effects = bring(stage, other, b"z", sequence=70) + stage.run_until(stage.ms + 50)
    [released] = sent(effects, ChangeRequest)
    assert released.target_sequence.tolist() == [70]


@pytest.mark.parametrize("asked_first", [False, True])
def test_what_the_caller_says_to_hold_does_not_come_by_an_earlier_one(asked_first: bool) -> None:
    stage = staged("a")
    assert answer(whole(stage, asks(stage, 1), b"x")) == [b"x"]
    earlier = asks(stage, 2)
    effects = [] if asked_first else bring(stage, earlier, b"x")
    effects += begin(stage, 3, held=[(1, 50, 0, 60)])
    effects += bring(stage, earlier, b"x") if asked_first else []
    for call in (2, 3):
        stage.step(events.Abandon(call))
    assert handed(effects) == []
    assert sent(effects + stage.run_until(stage.ms + 50), ChangeRequest) == []


def test_an_older_lease_that_the_caller_names_hides_no_later_one() -> None:
    stage = staged("a")
    first, second = asks(stage, 1), asks(stage, 2)
    assert handed(by(stage, "a", second, b"x", 70) + stage.receive("a", end(second, pushes=1))) == [b"x"]
    begin(stage, 3, held=[(1, 50, 0, 60)])
    assert handed(by(stage, "a", first, b"x", 70)) == []


def test_a_lease_that_a_later_one_has_followed_is_nobody_s() -> None:
    stage = staged("a")
    first = asks(stage, 1)
    assert handed(by(stage, "a", first, b"x", 70) + stage.receive("a", end(first, pushes=1))) == [b"x"]
    second = asks(stage, 2)
    effects = by(stage, "a", second, b"x", 60) + stage.receive("a", end(second, pushes=1))
    assert handed(effects) == []
    assert sent(effects + stage.run_until(stage.ms + 50), ChangeRequest) == []


def test_nothing_new_does_not_end_the_later_one() -> None:
    stage = staged("a")
    first = asks(stage, 1)
    at_us = stage.at_us(stage.ms + 10_000)
    later = events.Pull(2, at_us, TOPIC, 10, 5_000_000, 30_000, 1 << 20, HOLDER, [])
    [asked] = pulls_in(stage.step(later))
    effects = bring(stage, asked, b"x") + bring(stage, first, b"x")
    effects += bring(stage, asked, b"y", number=2, sequence=60) + stage.receive("a", end(asked, pushes=2))
    assert answer(effects) == [b"x", b"y"]


def test_what_a_later_one_had_is_known_as_long_as_an_earlier_one_waits() -> None:
    stage = staged("a")
    first, later = asks(stage, 1), asks(stage, 2)
    assert answer(whole(stage, later, b"x")) == [b"x"]
    effects = live(stage, 6_000) + bring(stage, first, b"x")
    assert handed(effects) == []


def test_what_comes_by_another_leader_when_an_earlier_one_was_refused_is_given_back() -> None:
    stage = staged("a", "b")
    one, other = both_wait(stage, 1)
    later = asks(stage, 2)
    mine, rest = (one, other) if later.leader == one.leader else (other, one)
    stage.receive(mine.leader, end(mine, code=Code.UNKNOWN_SESSION))
    assert answer(whole(stage, later, b"x")) == [b"x"]
    effects = bring(stage, rest, b"y", sequence=80) + stage.run_until(stage.ms + 50)
    [released] = sent(effects, ChangeRequest)
    assert released.target_sequence.tolist() == [80]


# ---------------------------------------------------------------- what goes back


def test_what_is_being_given_back_is_listed_by_the_next_pull() -> None:
    """The leader would bring it under a token that is about to end."""
    stage = staged("a")
    first = asks(stage, 1)
    effects = bring(stage, first, b"x", b"y") + stage.receive("a", end(first, pushes=1))
    assert answer(effects) == [b"x"]
    following = asks(stage, 2)
    assert list(zip(following.held_sequence.tolist(), following.held_row.tolist(), strict=True)) == [(50, 1)]


@pytest.mark.parametrize("how", ["under way", "unknown", "answered", "refused"])
def test_what_the_caller_is_settling_is_listed_while_that_may_arrive(how: str) -> None:
    """The leader would bring it, and a RELEASE that comes late would end it while its next holder works."""
    stage = staged("a")
    [done] = of(whole(stage, asks(stage, 1), b"x"), Completed)
    [given] = done.value
    columns = (np.array([value], dtype) for value, dtype in (
        (given.first, np.uint64), (given.uid, np.uint32), (given.sequence, np.uint64), (given.row, np.uint16),
    ))  # fmt: skip
    token = np.array([given.token], np.uint64)
    at_us = stage.at_us(stage.ms + 2_000)
    effects = stage.step(events.Alter(9, at_us, RecordKind.RELEASE, TOPIC, *columns, token=token))
    effects += stage.run_until(stage.ms + 20)
    [request] = sent(effects, ChangeRequest)
    if how == "unknown":
        [failed] = of(live(stage, 3_000), Failed)
        assert isinstance(failed.error, OutcomeUnknown)
    elif how != "under way":
        outcome = Outcome.DONE if how == "answered" else Outcome.STALE
        stage.receive("a", ok(request, 90, outcomes=[outcome]))
    listed = [50] if how in ("under way", "unknown") else []
    assert asks(stage, 2).held_sequence.tolist() == listed


def given(stage: Stage, call: int) -> list[Delivery]:
    """Have a pull take one message; returns it."""
    [done] = of(whole(stage, asks(stage, call), b"x"), Completed)
    deliveries: list[Delivery] = done.value
    return deliveries


def reaches_nobody(stage: Stage, call: int, deliveries: list[Delivery]) -> list[Effect]:
    pull = events.Pull(call, stage.at_us(stage.ms), TOPIC, 1, 0, 30_000, 1 << 20, HOLDER)
    return stage.step(events.GiveBack(pull, deliveries)) + stage.run_until(stage.ms + 50)


def test_an_answer_that_reaches_nobody_goes_back_and_is_listed_by_the_next_pull() -> None:
    stage = staged("a")
    [released] = sent(reaches_nobody(stage, 1, given(stage, 1)), ChangeRequest)
    assert (released.kind, released.target_sequence.tolist()) == (RecordKind.RELEASE, [50])
    following = asks(stage, 2)
    assert following.held_sequence.tolist() == [50]
    assert handed(bring(stage, following, b"x")) == []


@pytest.mark.parametrize("late", [False, True])
def test_an_answer_that_reaches_nobody_is_left_to_a_later_pull_that_has_it(late: bool) -> None:
    """It asked before anybody knew that the answer has reached nobody."""
    stage = staged("a")
    deliveries = given(stage, 1)
    if late:
        live(stage, 6_000)
    assert handed(whole(stage, asks(stage, 2), b"x")) == [b"x"]
    assert sent(reaches_nobody(stage, 1, deliveries), ChangeRequest) == []


def test_an_answer_that_reaches_nobody_goes_back_after_a_long_time_too() -> None:
    stage = staged("a")
    deliveries = given(stage, 1)
    live(stage, 8_000)
    assert len(sent(reaches_nobody(stage, 1, deliveries), ChangeRequest)) == 1
    assert asks(stage, 2).held_sequence.tolist() == [50]
    stage.step(events.Close())
    assert sent(reaches_nobody(stage, 1, deliveries), ChangeRequest) == []


def test_what_could_not_be_given_back_may_come_again() -> None:
    """It is still this name's: nobody else would get it as long as its lease lasts."""
    stage = staged("a")
    first = asks(stage, 1)
    effects = bring(stage, first, b"x", sequence=50) + bring(stage, first, b"y", number=2, sequence=60)
    effects += stage.receive("a", end(first, pushes=2))
    assert answer(effects) == [b"x"]
    [released] = sent(effects + stage.run_until(stage.ms + 50), ChangeRequest)
    assert released.target_sequence.tolist() == [60]
    stage.receive("a", ChangeReply(released.request_id, Code.INVALID_REQUEST, "why"))
    assert answer(whole(stage, asks(stage, 2), b"y", sequence=60)) == [b"y"]


def test_what_could_not_be_given_back_is_left_to_the_pull_that_has_it_by_a_later_lease() -> None:
    stage = staged("a")
    first = asks(stage, 1)
    effects = bring(stage, first, b"x", sequence=60) + bring(stage, first, b"y", number=2)
    effects += stage.receive("a", end(first, pushes=2))
    [released] = sent(effects + stage.run_until(stage.ms + 50), ChangeRequest)
    second = asks(stage, 2)
    assert handed(by(stage, "a", second, b"y", token=70) + stage.receive("a", end(second, pushes=1))) == [
        b"y"
    ]
    stage.receive("a", ChangeReply(released.request_id, Code.INVALID_REQUEST, "why"))
    effects = by(stage, "a", first, b"y", token=70) + live(stage, 1_000)
    assert sent(effects, ChangeRequest) == []


def test_of_very_many_messages_of_a_name_the_first_are_forgotten() -> None:
    """It may be pulled by for years, and never be without a pull."""
    names = PullNames()
    pulling = PullCall(events.Pull(1, 0, TOPIC, 1, 0, 30_000, 1 << 20, HOLDER), b"p" * 16, 1, 0)
    pulling.order = 1
    names.asks(pulling)
    message, _ = push("a", 1, 1, [b"x"])
    came = [
        Delivery(name, 1, 0, name, 0, 0, 60, 1, 0, 0, b"x", Pushed(message), 0)
        for name in range(5 * CONSUMER_LEASES_MAX)
    ]
    for delivery in came:
        assert names.whose(pulling, [delivery]) == (pulling, [delivery])
    assert names.whose(pulling, came[-1:]) == (pulling, [])
    assert names.whose(pulling, came[:1]) == (pulling, came[:1])


def test_of_two_leases_of_a_message_the_later_one_is_listed() -> None:
    """The earlier one goes back, and no answer says that it has."""
    stage = staged("a")
    first = asks(stage, 1)
    stage.step(events.Abandon(1))
    bring(stage, first, b"x")
    [question] = pulls_in(begin(stage, 2, held=[(1, 50, 0, 70)]))
    assert (question.held_sequence.tolist(), question.held_token.tolist()) == ([50], [70])


def test_what_a_leader_brings_all_the_same_is_given_back_once() -> None:
    stage = staged("a")
    effects: list[Effect] = []
    for call in (1, 2):
        frame = asks(stage, call)
        stage.step(events.Abandon(call))
        effects += bring(stage, frame, b"x")
    effects += stage.run_until(stage.ms + 50)
    tokens = 0
    for request in sent(effects, ChangeRequest):
        tokens += len(request.token)
        stage.receive("a", ok(request, 90, outcomes=[0] * len(request.token)))
    assert tokens == 1
    assert asks(stage, 3).held_sequence.tolist() == []


def test_a_damaged_message_that_another_process_has_is_left_to_it() -> None:
    stage = staged("a")
    first = asks(stage, 1)
    stage.receive("a", end(first, code=Code.UNKNOWN_SESSION))
    message, _ = push("a", first.attach, 1, [b"x"], consumer_id=first.consumer_id)
    effects = stage.receive("a", message, b"y") + stage.run_until(stage.ms + 50)
    assert sent(effects, ChangeRequest) == []


def damage(stage: Stage, frame: ConsumerFrame) -> list[Effect]:
    """Answer a question with a damaged message."""
    message, _ = push("a", frame.attach, 1, [b"x"], consumer_id=frame.consumer_id)
    return stage.receive("a", message, b"y") + stage.receive("a", end(frame, pushes=1))


def test_a_damaged_message_is_given_back_though_a_later_pull_has_asked() -> None:
    """The later one was refused. The earlier one asks again, and lists it."""
    stage = staged("a")
    first = asks(stage, 1)
    stage.receive("a", end(first, ended=False))
    stage.receive("a", end(asks(stage, 2), code=Code.INVALID_REQUEST))
    effects = damage(stage, first)
    [again] = pulls_in(effects)
    assert again.held_sequence.tolist() == [50]
    [request] = sent(effects + stage.run_until(stage.ms + 50), ChangeRequest)
    assert request.kind is RecordKind.NACK


def test_nothing_is_kept_of_pulls_that_are_over() -> None:
    stage = staged("a")
    for call in range(30):
        stage.receive("a", end(asks(stage, call, order=5 + call % 3, wait_ms=0)))
    asks(stage, 30)
    live(stage, 20_000)
    pulling = stage.core._pulling
    assert (pulling._names._names, pulling._open, pulling._by_call) == ({}, {}, {})

"""How much leaders may have out to a consumer; `tests/property/test_credit_division.py` tries all divisions."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.client.core.consuming.credit import Share, affordable
from dueq.client.core.consuming.holding import LOST_US
from dueq_codecs.messages import ConsumerAction, ConsumerFrame
from dueq_codecs.records import RecordKind
from tests.unit.client.core.consuming.test_consumer import attached, delivered
from tests.unit.client.stage import Stage, confirm, ok, push, sent, settle

SESSION_US = limits.CONSUMER_SESSION_MS * 1000


@pytest.mark.parametrize(
    "spread",
    [
        Share(limit=6, held=0, waiting=0),
        Share(limit=1, held=6, waiting=0),
        Share(limit=1, held=4, waiting=0, coming=2),
    ],
    ids=["has been granted", "is held", "is held or on its way"],
)
def test_what_a_leader_may_have_out_is_nobody_elses(spread: Share) -> None:
    assert affordable(10, [spread, Share(limit=2, held=0, waiting=9)], [1, 9]) == [1, 4]


def test_free_credit_is_lent_once() -> None:
    shares = [Share(limit=0, held=0, waiting=9) for _ in range(3)]
    assert affordable(10, shares, [6, 6, 6]) == [6, 4, 0]


def until_silent(stage: Stage, told: dict[str, ConsumerFrame], *, until_us: int = LOST_US) -> None:
    """Leader a answers every frame, and leader b none, until this instant."""
    while stage.ms < until_us / 1000:
        for frame in sent(stage.run_until(stage.ms + 10), ConsumerFrame):
            told[frame.leader] = frame
            if frame.leader == "a":
                stage.receive("a", confirm(frame))


def test_a_silent_leader_whose_credit_others_have_is_promised_none_when_it_comes_back() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    told = attached(stage, credit=8)
    assert [told[leader].credit for leader in "ab"] == [4, 4]
    until_silent(stage, told, until_us=SESSION_US)
    assert [told[leader].credit for leader in "ab"] == [8, 0]
    [attach] = sent(stage.connect("b"), ConsumerFrame)
    assert (attach.leader, attach.action, attach.credit) == ("b", ConsumerAction.ATTACH, 0)


def test_credit_of_a_silent_leader_is_nobody_elses_while_a_frame_may_bring_it_there() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    told = attached(stage, credit=8)
    until_silent(stage, told)
    assert told["b"].credit == 4
    given = sent(stage.receive("a", confirm(told["a"], waiting=9)), ConsumerFrame)
    assert not [frame for frame in given if frame.credit > 4]


def fifth_leader(waiting: int) -> tuple[Stage, dict[str, int]]:
    """A fifth leader joins four that have all of the credit; returns what each was told once all was answered."""
    stage = Stage(list("abcde"), {1: "a", 2: "b", 3: "c", 4: "d", 5: "a"})
    told = {leader: frame.credit for leader, frame in attached(stage, credit=64).items()}
    assert told == dict.fromkeys("abcd", 16)
    stage.leaders, stage.epoch = {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}, 2
    frames = sent(stage.answer_metadata(stage.run_until(2_100)), ConsumerFrame)
    while frames:
        frame = frames.pop(0)
        told[frame.leader] = frame.credit
        unserved = waiting if frame.leader == "e" and not frame.credit else 0
        frames += sent(stage.receive(frame.leader, confirm(frame, waiting=unserved)), ConsumerFrame)
    return stage, told


def test_a_leader_that_joins_many_gets_credit_from_all_of_them() -> None:
    """Each gives up less than what is worth a frame by itself."""
    _, told = fifth_leader(waiting=0)
    assert sum(told.values()) <= 64
    assert told["e"] >= 8


def test_a_message_at_a_leader_without_credit_is_served_however_little_each_other_leader_can_give() -> None:
    _, told = fifth_leader(waiting=2)
    assert sum(told.values()) <= 64
    assert told["e"] >= 2


def test_a_message_that_waits_gets_credit_that_has_become_free_however_little_it_is() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage, credit=32)
    assert [frames[leader].credit for leader in "ab"] == [16, 16]
    delivered(stage, "a", *[b"x"] * 16, attach=frames["a"].attach)
    delivered(stage, "b", *[b"y"] * 15, attach=frames["b"].attach, uid=2)
    [lowered] = sent(stage.receive("a", confirm(frames["a"], waiting=5)), ConsumerFrame)
    assert (lowered.leader, lowered.credit) == ("b", 15)
    [raised] = sent(stage.receive("b", confirm(lowered)), ConsumerFrame)
    assert (raised.leader, raised.credit) == ("a", 17)


def test_credit_of_a_lease_that_is_over_goes_to_where_messages_wait_before_its_leader_takes_it() -> None:
    """The leader hears that we live, and would give the next of its own for it."""
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage, credit=1)
    rich, poor = sorted(frames, key=lambda leader: -frames[leader].credit)
    uid = {"a": 1, "b": 2}[rich]
    [delivery] = delivered(stage, rich, b"x", attach=frames[rich].attach, uid=uid, left_ms=1_000)
    delivery.handed = True
    stage.receive(poor, confirm(frames[poor], waiting=3))
    told = sent(stage.run_until(1_000), ConsumerFrame)
    assert {(frame.leader, frame.credit) for frame in told} == {(rich, 0)}


def test_a_push_that_takes_the_last_credit_has_more_asked_for_what_waits_behind_it() -> None:
    """The leader has said before that more wait, and says nothing now."""
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage, credit=32)
    assert not sent(stage.receive("a", confirm(frames["a"], waiting=20)), ConsumerFrame)
    message, body = push("a", frames["a"].attach, 1, [b"x"] * 16)
    told = sent(stage.receive("a", message, body), ConsumerFrame)
    assert [frame.leader for frame in told] == ["b"]
    assert told[0].credit < 16


def test_a_single_credit_goes_to_leaders_with_messages_in_turn() -> None:
    """Else the messages of one would wait for as long as the other has some."""
    stage = Stage(["a", "b", "c"], {1: "a", 2: "b", 3: "c"})
    frames = list(attached(stage, credit=1).values())
    uids = {leader: uid for uid, leader in stage.leaders.items()}
    served: list[str] = []
    while len(served) < 8 and stage.ms < 60_000:
        frames += sent(stage.run_until(stage.ms + 10), ConsumerFrame)
        while frames and len(served) < 8:
            frame = frames.pop(0)
            busy = frame.leader in "bc"
            effects = stage.receive(frame.leader, confirm(frame, waiting=9 * busy))
            if busy and frame.credit:
                served.append(frame.leader)
                uid, count = uids[frame.leader], served.count(frame.leader)
                [delivery] = delivered(
                    stage, frame.leader, b"x", attach=frame.attach, number=count, uid=uid, sequence=50 + count
                )
                for request in settle(stage, RecordKind.ACK, delivery):
                    effects += stage.receive(frame.leader, ok(request, 90 + len(served), outcomes=[0]))
            frames += sent(effects, ConsumerFrame)
    assert len(served) == 8
    assert {leader: served.count(leader) for leader in "bc"} == {"b": 4, "c": 4}


def test_a_single_credit_that_a_leader_makes_nothing_of_goes_on_before_the_next_beat() -> None:
    """Another consumer has got its messages: those of other leaders would wait for a second or more."""
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = list(attached(stage, credit=1).values())
    turns = []
    while len(turns) < 4 and stage.ms < limits.CONSUMER_BEAT_MS:
        turns += [frame.leader for frame in frames if frame.credit]
        given = [stage.receive(frame.leader, confirm(frame, waiting=9)) for frame in frames]
        frames = sent([effect for effects in given for effect in effects], ConsumerFrame)
        frames = frames or sent(stage.run_until(stage.ms + 10), ConsumerFrame)
    assert turns == ["a", "b", "a", "b"]

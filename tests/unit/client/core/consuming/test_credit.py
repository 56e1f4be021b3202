"""How much leaders may have out to a consumer; `tests/property/test_credit_division.py` tries all divisions."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.client.core.consuming.credit import Share, affordable
from dueq.client.core.consuming.holding import LOST_US
from dueq_codecs.messages import ConsumerAction, ConsumerFrame
from tests.unit.client.core.consuming.test_consumer import attached
from tests.unit.client.stage import Stage, confirm, sent

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

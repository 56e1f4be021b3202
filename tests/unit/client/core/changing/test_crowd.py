"""Calls of many threads or tasks, which may go to any partition, share requests."""

from __future__ import annotations

import pytest

from dueq.client.core.ports.effects import Completed, Failed
from dueq.errors import Busy
from dueq_codecs.messages import ChangeRequest
from tests.unit.client.stage import Stage, of, ok, sent

MANY = range(3, 51)


@pytest.fixture
def stage() -> Stage:
    """Three partitions of one broker, connected, topic known."""
    stage = Stage(uids={1: "a", 2: "a", 3: "a"})
    stage.connect()
    stage.learn_topic()
    return stage


def two_open(stage: Stage) -> list[ChangeRequest]:
    return [sent(stage.insert(call, b"x"), ChangeRequest)[0] for call in (1, 2)]


def gathered(stage: Stage) -> ChangeRequest:
    """Fifty callers: two have sent, and the others share what is sent when the first of them is answered."""
    first, second = two_open(stage)
    for call in MANY:
        assert not sent(stage.insert(call, b"x"), ChangeRequest)
    [request] = sent(stage.receive("a", ok(first, 2)), ChangeRequest)
    assert request.rows == len(MANY)
    stage.receive("a", ok(second, 3))
    return request


def test_one_caller_waits_for_nobody_and_goes_round_the_partitions(stage: Stage) -> None:
    uids = []
    for call in range(1, 7):
        [request] = sent(stage.insert(call, b"x"), ChangeRequest)
        stage.receive("a", ok(request, call))
        uids.append(request.uid)
    assert sorted(uids) == [1, 1, 2, 2, 3, 3]


def test_what_waits_for_answers_goes_to_one_partition_and_what_comes_then_to_the_next(stage: Stage) -> None:
    request = gathered(stage)
    assert len(of(stage.receive("a", ok(request, 9)), Completed)) == len(MANY)
    for call in MANY:
        stage.insert(call, b"x")
    following = sent(stage.effects, ChangeRequest)[-1]
    assert following.rows > len(MANY) // 2
    assert following.uid != request.uid


def test_a_partition_that_does_not_answer_holds_up_the_others_for_20_ms(stage: Stage) -> None:
    open_at = {request.uid for request in two_open(stage)}
    assert not sent(stage.insert(3, b"x"), ChangeRequest)
    assert not sent(stage.run_until(stage.ms + 19), ChangeRequest)
    [request] = sent(stage.run_until(stage.ms + 2), ChangeRequest)
    assert request.uid not in open_at


def test_a_partition_that_owes_two_answers_is_passed_over(stage: Stage) -> None:
    dead, other = two_open(stage)
    stage.receive("a", ok(other, 2))
    for call in range(3, 30):
        effects = stage.insert(call, b"x") + stage.run_until(stage.ms + 30)
        for request in sent(effects, ChangeRequest):
            if request.uid != dead.uid:
                stage.receive("a", ok(request, call))
    completed = of(stage.effects, Completed)
    assert (
        len({done.call for done in completed} & set(range(3, 30))) == 27 - 1
    )  # one more went to the dead one


def test_who_was_answered_together_is_waited_for_for_3_ms(stage: Stage) -> None:
    stage.receive("a", ok(gathered(stage), 9))
    assert not sent(stage.insert(1, b"x"), ChangeRequest)
    assert not sent(stage.run_until(stage.ms + 2), ChangeRequest)
    [request] = sent(stage.run_until(stage.ms + 2), ChangeRequest)
    assert request.rows == 1


def test_a_call_whose_time_is_over_while_it_gathers_is_not_sent(stage: Stage) -> None:
    two_open(stage)
    stage.insert(3, b"x", timeout_ms=5)
    [failed] = of(stage.run_until(stage.ms + 6), Failed)
    assert failed.call == 3
    assert isinstance(failed.error, Busy)
    assert "topic 'departures'" in str(failed.error)
    assert not sent(stage.run_until(stage.ms + 100), ChangeRequest)

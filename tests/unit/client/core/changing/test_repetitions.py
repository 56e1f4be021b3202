"""Requests without an answer, or refused though they are of several callers: when they are sent again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dueq import limits
from dueq.client.core import ClientCore
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed, Failed
from dueq.errors import ClientClosed, Disconnected, InvalidRequest
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code, Hello, MetadataRequest
from tests.unit.client.stage import Half, Stage, endpoint, hello_reply, of, ok, sent


@pytest.fixture
def stage() -> Stage:
    """Two brokers; the first leads the only partition."""
    stage = Stage(["a", "b"])
    stage.connect()
    stage.learn_topic()
    return stage


def test_a_request_without_an_answer_is_repeated_less_and_less_often(stage: Stage) -> None:
    """Its leader may have too much to do; each repetition is more of it."""
    stage.insert(7, b"x")
    times = [stage.ms]
    while stage.ms < 20_000:
        effects = stage.run_until(stage.ms + 50)
        times += [stage.ms] * len(sent(effects, ChangeRequest))
        for hello in sent(effects, Hello):  # the links are well
            for broker in stage.brokers:
                stage.receive(broker, hello_reply(broker, hello.sent_wall_us, stage.now.wall_us))
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits[:2] == [1_000, 2_000]
    assert set(waits[2:]) == {4_000}


def test_a_request_whose_link_is_lost_has_it_asked_at_once_who_leads(stage: Stage) -> None:
    stage.insert(7, b"x")
    stage.run_until(500)
    assert sent(stage.step(events.LinkLost(stage.links[endpoint("a")], "gone")), MetadataRequest)


def test_what_its_caller_was_told_not_to_be_sent_is_not_sent_when_a_broker_is_there_again(
    stage: Stage,
) -> None:
    for broker in stage.brokers:
        stage.step(events.LinkLost(stage.links[endpoint(broker)], "gone"))
    stage.insert(7, b"x", timeout_ms=500)
    [failed] = of(stage.run_until(stage.ms + 600), Failed)
    assert isinstance(failed.error, Disconnected)
    assert sent(stage.connect() + stage.run_until(stage.ms + 1_000), ChangeRequest) == []


def test_a_request_that_was_only_refused_goes_on_for_longer_than_brokers_remember_it(stage: Stage) -> None:
    """Nothing has come of it: to repeat it is as safe as on the first day."""
    asked = sent(stage.insert(7, b"x", timeout_ms=3_600_000), ChangeRequest)
    while stage.ms < limits.DEDUP_MS + 60_000:
        effects = [effect for request in asked for effect in stage.receive("a", busy(request))]
        effects += stage.run_until(stage.ms + 2_000)
        for hello in sent(effects, Hello):  # the links are well
            for broker in stage.brokers:
                stage.receive(broker, hello_reply(broker, hello.sent_wall_us, stage.now.wall_us))
        assert of(effects, Failed) == []
        asked = sent(effects, ChangeRequest)
    asked = asked or sent(stage.run_until(stage.ms + 3_000), ChangeRequest)
    assert of(stage.receive("a", ok(asked[-1], 5)), Completed)


def busy(request: ChangeRequest) -> ChangeReply:
    return ChangeReply(request.request_id, Code.BUSY, "later", retry_after_ms=1_900)


def test_of_callers_that_share_a_refused_request_only_the_one_at_fault_is_told(stage: Stage) -> None:
    """Each goes by itself then: together they would be refused again and again."""
    requests = [
        request for call in range(10, 16) for request in sent(stage.insert(call, b"x"), ChangeRequest)
    ]
    requests += sent(stage.run_until(stage.ms + 1), ChangeRequest)
    first, second = requests
    shared = sent(stage.receive("a", ok(first, 5)) + stage.receive("a", ok(second, 6)), ChangeRequest)
    while max(request.rows for request in shared) < 2:
        assert stage.ms < 100
        shared += sent(stage.run_until(stage.ms + 1), ChangeRequest)
    together = next(request for request in shared if request.rows > 1)
    effects = stage.receive("a", ChangeReply(together.request_id, Code.INVALID_REQUEST, "why"))
    assert of(effects, Failed) == []
    answered = {request.request_id for request in (first, second, together)}
    failed, done = [], []
    for _ in range(20):
        for request in sent(stage.effects, ChangeRequest):
            if request.request_id in answered:
                continue
            answered.add(request.request_id)
            assert request.rows == 1
            if failed or done:
                done += of(stage.receive("a", ok(request, 10 + len(done))), Completed)
            else:
                failed = of(stage.receive("a", ChangeReply(request.request_id, Code.INVALID_REQUEST)), Failed)
        stage.run_until(stage.ms + 1)
    assert [type(each.error) for each in failed] == [InvalidRequest]
    assert len(done) == together.rows - 1


def test_a_call_of_another_machine_is_not_repeated_and_never_will_be(stage: Stage) -> None:
    """Such as one of a forked process's parent: its number, and those of its requests, are of others here."""
    stage.insert(7, b"x", timeout_ms=500)
    [failed] = of(stage.run_until(stage.ms + 500), Failed)
    assert failed.repeat is not None
    stage.core = ClientCore(b"j" * 16, [endpoint(broker) for broker in stage.brokers], Half())
    stage.connect()
    stage.learn_topic()
    [mine] = sent(stage.insert(6, b"y"), ChangeRequest)
    effects = stage.step(events.Repeat(8, stage.at_us(stage.ms + 9_000), failed.repeat))
    assert not sent(effects, ChangeRequest)
    [refused] = of(effects, Failed)
    assert (refused.call, type(refused.error)) == (8, ClientClosed)
    assert [done.call for done in of(stage.receive("a", ok(mine, 5)), Completed)] == [6]

"""A consumer with detached leases: neither silence nor its own goodbye takes them from it."""

from __future__ import annotations

from dataclasses import replace

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import LeaseLost
from dueq_codecs.messages import ChangeRequest, Code, ConsumerAction, ConsumerFrame, MetadataRequest
from dueq_codecs.records import Outcome, RecordKind
from tests.unit.client.core.consuming.test_consumer import attached, delivered
from tests.unit.client.stage import CONSUMER, Stage, confirm, endpoint, of, ok, push, sent


def test_detached_leases_outlive_the_silence_of_a_leader() -> None:
    stage = Stage()
    (frame,) = attached(stage, detached=True).values()
    assert frame.detached
    [delivery] = delivered(stage, "a", b"x", left_ms=60_000)
    delivery.handed = True
    assert not of(stage.run_until(59_900), LeaseLost)
    assert [lost.deliveries for lost in of(stage.run_until(60_100), LeaseLost)] == [[delivery]]


def test_what_is_held_of_a_silent_leader_takes_credit_while_it_is_detached() -> None:
    stage = Stage(("a", "b"), {1: "a", 2: "b"})
    attached(stage, detached=True, credit=8)
    delivered(stage, "a", b"x", b"y", b"z", left_ms=60_000)
    stated = []
    while stage.ms < 15_000:
        for frame in sent(stage.run_until(stage.ms + 500), ConsumerFrame):
            if frame.leader == "b":
                stated.append(frame.credit)
                stage.receive("b", confirm(frame, waiting=100))
    assert max(stated) == 5


def test_the_goodbye_of_who_has_detached_leases_lists_what_is_not_settled() -> None:
    stage = Stage()
    attached(stage, detached=True)
    (sent_off, unhandled) = delivered(stage, "a", b"x", b"y", left_ms=60_000)
    sent_off.handed = True
    closing = stage.step(events.CloseConsumer(5, stage.at_us(5_000), CONSUMER, [unhandled]))
    (request,) = sent(closing + stage.run_until(stage.ms + 2), ChangeRequest)
    assert request.kind is RecordKind.RELEASE
    (goodbye,) = sent(
        stage.receive("a", ok(request, 99, outcomes=[Outcome.DONE])) + stage.run_until(stage.ms + 2),
        ConsumerFrame,
    )
    assert (goodbye.action, goodbye.held_token.tolist()) == (ConsumerAction.GOODBYE, [sent_off.token])


def test_what_came_when_its_user_had_closed_already_is_given_back() -> None:
    """It is in no list of the user, and would stay leased, to nobody, for as long as its lease lasts."""
    stage = Stage()
    frames = attached(stage, detached=True)
    message, body = push("a", frames["a"].attach, 1, [b"x"], left_ms=60_000)
    link = stage.links[endpoint("a")]
    closing = stage.step(
        events.FrameReceived(link, message, [body]), events.CloseConsumer(5, stage.at_us(5_000), CONSUMER, [])
    )
    (request,) = sent(closing + stage.run_until(stage.ms + 2), ChangeRequest)
    assert (request.kind, request.rows) == (RecordKind.RELEASE, 1)
    (goodbye,) = sent(stage.receive("a", ok(request, 99, outcomes=[Outcome.DONE])), ConsumerFrame)
    assert (goodbye.action, len(goodbye.held_token)) == (ConsumerAction.GOODBYE, 0)


def test_a_lease_of_a_partition_that_is_gone_is_listed_aside() -> None:
    """No leader answers for it. As one that was stated plainly it made each of them silent, and no credit was left."""
    stage = Stage()
    attached(stage, detached=True)
    (held,) = delivered(stage, "a", b"x", left_ms=600_000)
    held.handed = True
    stage.leaders = {2: "a"}
    attach: ConsumerFrame | None = None
    while attach is None:
        assert stage.ms < 60_000, "the leader was not attached at again"
        found = stage.run_until(stage.ms + 500)
        is_known = bool(sent(found, MetadataRequest))
        stage.answer_metadata(found)
        for frame in sent(found, ConsumerFrame):
            if frame.action is ConsumerAction.ATTACH:
                attach = frame
            code = Code.UNKNOWN_SESSION if is_known else Code.OK
            for again in sent(stage.receive("a", replace(confirm(frame), code=code)), ConsumerFrame):
                attach = again if again.action is ConsumerAction.ATTACH else attach
    assert (attach.held_token.tolist(), attach.aside) == ([held.token], 1)

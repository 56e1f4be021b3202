"""Who let a lease run out is asked to attach again, unless it is known to be alive."""

from __future__ import annotations

from dueq_codecs.messages import Code, ConsumerReply
from tests.unit.core.led import Stage, at, pushed


def asked(stage: Stage, since: int) -> list[Code]:
    """The codes of the answers to consumers, from this frame on."""
    return [message.code for _, message, _ in stage.sent[since:] if isinstance(message, ConsumerReply)]


def test_who_has_been_silent_is_asked_at_once_to_attach_again() -> None:
    """A push of an inherited lease may have been lost, and its consumer says nothing before its next beat."""
    stage, _ = pushed(lease_ms=2_000)
    since = len(stage.sent)
    stage.run(2_010)
    assert Code.UNKNOWN_SESSION in asked(stage, since)


def test_who_has_just_spoken_is_not_asked_to_attach_again() -> None:
    stage, _ = pushed(lease_ms=2_000)
    stage.beat(1_990, number=2, push_seen=1)
    since = len(stage.sent)
    stage.run(2_010)
    assert Code.UNKNOWN_SESSION not in asked(stage, since)
    reply = stage.beat(2_100, number=3, push_seen=2)
    assert reply is not None
    assert reply.code == Code.OK


def test_who_must_attach_for_another_reason_still_must_after_a_lease_ran_out() -> None:
    """It has not said yet what it holds of the partition that went elsewhere."""
    stage = Stage(partitions=2)
    for uid in (1, 2):
        stage.insert([10], uid=uid)
    stage.attach(0, lease_ms=2_000)
    stage.run(0)
    assert stage.run(10)
    stage.dispatcher.unlead(2, at(20))
    stage.beat(1_990, number=2, push_seen=1)
    stage.run(2_010)
    reply = stage.beat(2_020, number=3, push_seen=1)
    assert reply is not None
    assert reply.code == Code.UNKNOWN_SESSION

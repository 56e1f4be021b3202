"""An answer of a leader to an older attach says nothing to the newer one."""

from __future__ import annotations

from dueq_codecs.messages import Code, ConsumerAction, ConsumerFrame, ConsumerReply
from tests.unit.client.core.consuming.test_consumer import attached, delivered
from tests.unit.client.stage import CONSUMER, TOPIC, Stage, confirm, sent


def attached_anew(stage: Stage) -> ConsumerFrame:
    """The leader has forgotten the session; returns the second attach, which is not answered yet."""
    first = attached(stage)["a"]
    unknown = ConsumerReply(TOPIC, CONSUMER, first.attach, first.number, Code.UNKNOWN_SESSION)
    [attach] = sent(stage.receive("a", unknown), ConsumerFrame)
    assert (attach.action, attach.attach) == (ConsumerAction.ATTACH, 2)
    return attach


def test_an_answer_to_an_older_attach_is_none_to_the_newer_one() -> None:
    stage = Stage()
    attach = attached_anew(stage)
    late = confirm(attach)
    late.attach = 1
    stage.receive("a", late)
    again = sent(stage.run_until(1_010), ConsumerFrame)
    assert {frame.action for frame in again} == {ConsumerAction.ATTACH}


def test_a_push_of_an_older_attach_is_delivered_and_not_counted_for_the_newer_one() -> None:
    """Otherwise a push of the newer attach that was lost would never be missed."""
    stage = Stage()
    attach = attached_anew(stage)
    stage.receive("a", confirm(attach, push_sent=1))
    assert delivered(stage, "a", b"x", attach=1, number=1)
    beat = sent(stage.run_until(2_600), ConsumerFrame)[-1]
    assert (beat.attach, beat.push_seen) == (2, 0)

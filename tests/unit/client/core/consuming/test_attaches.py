"""What an attach says, and what an answer or a push of an older one says to the newer one."""

from __future__ import annotations

import pytest

from dueq.client.core.ports import events
from dueq_codecs.messages import Code, ConsumerAction, ConsumerFrame, ConsumerReply
from dueq_codecs.records import RecordKind
from tests.unit.client.stage import CONSUMER, TOPIC, Stage, attached, confirm, delivered, sent

LIFE = 70


def attached_anew(stage: Stage, life: int = 0) -> ConsumerFrame:
    """The leader has forgotten the session; returns the second attach, which is not answered yet."""
    first = attached(stage, life=life)["a"]
    unknown = ConsumerReply(TOPIC, CONSUMER, first.attach, first.number, Code.UNKNOWN_SESSION)
    [attach] = sent(stage.receive("a", unknown), ConsumerFrame)
    assert (attach.action, attach.attach) == (ConsumerAction.ATTACH, life + 2)
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


def test_a_consumer_with_a_name_takes_no_push_of_an_older_attach() -> None:
    """The newer one has said that it does not hold it: the leader may have renewed it, under another token."""
    stage = Stage()
    attach = attached_anew(stage, LIFE)
    stage.receive("a", confirm(attach))
    assert not delivered(stage, "a", b"x", attach=LIFE + 1, number=1)
    assert delivered(stage, "a", b"x", attach=LIFE + 2, number=1, token=61)


def test_a_late_decision_on_an_older_lease_does_not_hide_the_newer_one() -> None:
    """A leader that is not told of the newer one may end it, or give it to the consumer's next process."""
    stage = Stage()
    attach = attached(stage)["a"]
    [older] = delivered(stage, "a", b"x", attach=attach.attach, number=1)
    assert delivered(stage, "a", b"x", attach=attach.attach, number=2, token=older.token + 1)
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, [older]))
    unknown = ConsumerReply(TOPIC, CONSUMER, attach.attach, attach.number, Code.UNKNOWN_SESSION)
    [again] = sent(stage.receive("a", unknown), ConsumerFrame)
    assert again.held_token.tolist() == [older.token + 1]


@pytest.mark.parametrize(
    ("options", "aside"),
    [({}, 0), ({"life": LIFE}, 1), ({"detached": True}, 1)],
    ids=["plain", "named", "detached"],
)
def test_what_another_seems_to_lead_is_listed_aside_if_leaving_it_out_could_end_it(
    options: dict[str, int], aside: int
) -> None:
    """It may lead it after all, as one that has died and leads anew at once: then it renews what is not listed."""
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage, **options)
    delivered(stage, "a", b"x", attach=frames["a"].attach)
    unknown = ConsumerReply(TOPIC, CONSUMER, frames["b"].attach, frames["b"].number, Code.UNKNOWN_SESSION)
    [attach] = sent(stage.receive("b", unknown), ConsumerFrame)
    assert (attach.action, attach.leader) == (ConsumerAction.ATTACH, "b")
    assert (attach.held_uid.tolist(), attach.aside) == ([1] * aside, aside)

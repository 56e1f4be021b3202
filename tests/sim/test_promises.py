"""Whom a leader counts is looked up on the very disk that has acked, though it is lost before the ack is read."""

from __future__ import annotations

import pytest

from dueq.core.ports.events import Event, PeerFrameReceived
from dueq_chaos.bugs import BUGS
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.watching.invariants import Invariants, Violation
from dueq_chaos.sim.watching.promises import Promises
from dueq_codecs.messages import PeerFrame

_FAR_MS = 3_600_000
_WRONG = r"counts b2 for .*: that record is not on his disk"
_LATER = ("in its first life", "in its second life", "dead again")


def _reads_an_ack_of_a_lost_disk(later: str, *, on_disk: bool) -> Stage:
    """b1 sleeps over the loss of b2's disk, and then reads what b2 has acked before.

    Args:
        later: how b2 is, with its new disk, when b1 wakes.
        on_disk: what b2 acks reaches its disk.
    """
    stage = Stage()
    stage.stored(b"first")
    Invariants(stage, clock_error_us=0)
    end = stage.replica("b1").replica.log.end + 1

    def brings_ack(event: Event) -> bool:
        frame = event.message if isinstance(event, PeerFrameReceived) else None
        return isinstance(frame, PeerFrame) and any(ack.sequence >= end for ack in frame.acks)

    stage.spindles["b2"].stopped = not on_disk
    caught = stage.hold("b1", brings_ack)
    stage.hand("producer").insert("b1", [b"second"], [stage.now_ms + _FAR_MS])
    stage.until(
        lambda: (
            {event.message.sender for event in caught.events if isinstance(event, PeerFrameReceived)}
            == {"b2", "b3"}
        ),
        "both have acked, and b1 has not heard it",
    )
    stage.step("b1 falls asleep with the acks unread, and b2 loses its disk")
    stage.nodes["b1"].pause(1_000_000)
    caught.let_go()
    stage.spindles["b2"].stopped = False
    stage.lose_disk("b2")
    if later != "in its first life":
        stage.nodes["b2"].crash()
        stage.nodes["b2"].start()
    if later == "dead again":
        stage.nodes["b2"].crash()
    stage.until(lambda: not stage.nodes["b1"].paused, "b1 is awake")
    stage.until(lambda: stage.replica("b1").replica.commit >= end, "it counts both", within_ms=50)
    return stage


@pytest.mark.parametrize("later", _LATER)
def test_a_leader_may_count_what_a_disk_held_that_was_lost_before_it_read_the_ack(later: str) -> None:
    stage = _reads_an_ack_of_a_lost_disk(later, on_disk=True)
    stage.finish()


@pytest.mark.parametrize("later", _LATER)
def test_what_a_lost_disk_never_held_is_counted_wrongly_even_so(
    later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Promises, "broken_by", lambda *_: "")  # that would tell at once, when the ack leaves
    with BUGS["follower-acks-before-sync"].planted(), pytest.raises(Violation, match=_WRONG):
        _reads_an_ack_of_a_lost_disk(later, on_disk=False)


def test_what_a_lost_disk_held_does_not_count_for_the_new_one() -> None:
    stage = Stage()
    stage.stored(b"first")
    Invariants(stage, clock_error_us=0)
    stage.lose_disk("b2")
    with BUGS["acks-outlive-the-disk"].planted(), pytest.raises(Violation, match=_WRONG):
        stage.run_ms(5_000)

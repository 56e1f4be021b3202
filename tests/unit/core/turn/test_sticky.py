"""What a peer is told until it has answered a frame that held it."""

from __future__ import annotations

from dueq.core.turn.sticky import Sticky
from dueq_codecs.messages import Fence


def test_it_is_in_every_frame_until_one_that_held_it_is_answered() -> None:
    sticky: Sticky[Fence] = Sticky()
    sticky.put(Fence(1, 5))
    assert sticky.wants_frame
    assert sticky.take(10) == [Fence(1, 5)]
    assert not sticky.wants_frame
    sticky.put(Fence(2, 6))
    assert sticky.take(20) == [Fence(1, 5), Fence(2, 6)]
    sticky.answered(19)
    assert sticky.take(30) == [Fence(2, 6)]
    sticky.answered(30)
    assert sticky.take(40) == []


def test_only_the_latest_of_a_partition_is_told_and_an_answer_to_the_earlier_one_does_not_count() -> None:
    sticky: Sticky[Fence] = Sticky()
    sticky.put(Fence(1, 5))
    sticky.take(10)
    sticky.put(Fence(1, 6))
    sticky.answered(10)
    assert sticky.take(20) == [Fence(1, 6)]


def test_of_a_partition_that_is_gone_nothing_is_told() -> None:
    sticky: Sticky[Fence] = Sticky()
    sticky.put(Fence(1, 5))
    sticky.put(Fence(2, 5))
    sticky.take(10)
    sticky.forget(1)
    assert sticky.take(20) == [Fence(2, 5)]

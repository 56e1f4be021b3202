"""What a peer is told until it has answered a frame that held it."""

from __future__ import annotations

from dueq.core.turn.until_acked import UntilAcked
from dueq_codecs.messages import Fence


def test_it_is_in_every_frame_until_one_that_held_it_is_answered() -> None:
    items: UntilAcked[Fence] = UntilAcked()
    items.put(Fence(1, 5))
    assert items.untold
    assert items.take(10) == [Fence(1, 5)]
    assert not items.untold
    items.put(Fence(2, 6))
    assert items.take(20) == [Fence(1, 5), Fence(2, 6)]
    items.answered(19)
    assert items.take(30) == [Fence(2, 6)]
    items.answered(30)
    assert items.take(40) == []


def test_only_the_latest_of_a_partition_is_told_and_an_answer_to_the_earlier_one_does_not_count() -> None:
    items: UntilAcked[Fence] = UntilAcked()
    items.put(Fence(1, 5))
    items.take(10)
    items.put(Fence(1, 6))
    items.answered(10)
    assert items.take(20) == [Fence(1, 6)]


def test_of_a_partition_that_is_gone_nothing_is_told() -> None:
    items: UntilAcked[Fence] = UntilAcked()
    items.put(Fence(1, 5))
    items.put(Fence(2, 5))
    items.take(10)
    items.forget(1)
    assert items.take(20) == [Fence(2, 5)]

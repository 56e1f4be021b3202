"""Messages that wait for the user, and those that are taken back before."""

from __future__ import annotations

from dueq.client.core.ports.delivery import Delivery
from dueq.client.inbox import Inbox
from tests.unit.client.core.consuming.test_consumer import attached, delivered
from tests.unit.client.stage import Stage


def with_two() -> tuple[Inbox, Delivery, Delivery]:
    """An inbox of two messages, of which the user has taken the first."""
    stage = Stage()
    attached(stage)
    inbox = Inbox(lambda: None)
    first, second = delivered(stage, "a", b"x", b"y")
    inbox.deliver([first, second])
    assert inbox.take(1, 0) == [first]
    return inbox, first, second


def test_of_what_is_lost_the_user_hears_what_he_has_and_the_rest_can_go_back() -> None:
    inbox, first, second = with_two()
    assert inbox.lose([first, second]) == [second]
    assert inbox.take_lost() == [first]
    assert inbox.take(9, 0) == []
    assert inbox.close() == []


def test_what_comes_when_it_is_closed_is_not_handed_out() -> None:
    stage = Stage()
    attached(stage)
    inbox = Inbox(lambda: None)
    assert inbox.close() == []
    inbox.deliver(delivered(stage, "a", b"x"))
    assert inbox.take(9, 0) == []


def test_what_is_reclaimed_is_not_handed_out_any_more() -> None:
    inbox, first, second = with_two()
    assert inbox.reclaim([first, second]) == [second]
    assert inbox.take(9, 0) == []
    assert inbox.take_lost() == []


def test_what_is_handed_out_has_a_lease_that_is_not_over() -> None:
    """The session machine may not have had its turn since."""
    stage = Stage()
    attached(stage)
    inbox = Inbox(lambda: None)
    first, second = delivered(stage, "a", b"x", b"y")
    second.deadline_us = first.deadline_us + 1
    inbox.deliver([first, second])
    assert inbox.take(9, first.deadline_us) == [second]
    assert not first.handed


def test_what_is_lost_does_not_go_back_when_it_is_closed() -> None:
    stage = Stage()
    attached(stage)
    inbox = Inbox(lambda: None)
    first, second = delivered(stage, "a", b"x", b"y")
    inbox.deliver([first, second])
    first.lost = True
    assert inbox.close() == [second]

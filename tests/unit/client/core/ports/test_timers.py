"""Pending actions."""

from __future__ import annotations

from dueq.client.core.ports.timers import Timers


def test_what_was_cancelled_is_not_kept_until_its_instant() -> None:
    timers = Timers()
    ran: list[int] = []
    for number in range(10_000):
        timers.at(900_000_000, lambda: ran.append(-1)).cancel()
        if number % 1_000 == 0:
            timers.at(10_000 - number, lambda number=number: ran.append(number))  # type: ignore[misc]
    assert len(timers) < 1_000
    assert timers.next_us() == 1_000
    timers.run(1_000_000_000)
    assert ran == [9_000, 8_000, 7_000, 6_000, 5_000, 4_000, 3_000, 2_000, 1_000, 0]


def test_many_that_are_pending_stay() -> None:
    timers = Timers()
    ran: list[int] = []
    for number in range(5_000):
        timers.at(number, lambda number=number: ran.append(number))  # type: ignore[misc]
    timers.run(4_999)
    assert ran == list(range(5_000))

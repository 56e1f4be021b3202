"""The safe assumptions about a lease that was asked to end at another instant."""

from __future__ import annotations

from dueq.client.core.ports.extending import Extension


def test_the_earliest_possible_end_counts_until_the_answer() -> None:
    """Shorter at once, longer never before it is known."""
    lease = Extension(1_000)
    lease.ask(500)
    assert lease.until_us == 500
    lease.ask(2_000)
    assert lease.until_us == 500
    lease.answered(500, (7, 0))
    assert lease.until_us == 500
    lease.answered(2_000, (8, 0))
    assert lease.until_us == 2_000


def test_what_was_applied_last_counts_however_the_answers_come() -> None:
    """Repeated requests are answered late, and may have been applied late."""
    lease = Extension(1_000)
    lease.ask(2_000)
    lease.ask(3_000)
    lease.answered(3_000, (8, 4))
    assert lease.until_us == 2_000
    lease.answered(2_000, (9, 0))
    assert lease.until_us == 2_000

    lease = Extension(1_000)
    lease.ask(2_000)
    lease.ask(3_000)
    lease.answered(2_000, (8, 3))
    lease.answered(3_000, (8, 2))
    assert lease.until_us == 2_000


def test_a_refused_extension_was_never_there() -> None:
    """The longer end may be believed again."""
    lease = Extension(1_000)
    lease.ask(500)
    lease.answered(500, None)
    assert lease.until_us == 1_000


def test_an_extension_without_an_answer_stays_possible() -> None:
    """It may still be on its way when others have been answered."""
    lease = Extension(1_000)
    lease.ask(500)
    lease.ask(9_000)
    lease.answered(9_000, (8, 0))
    assert lease.until_us == 500

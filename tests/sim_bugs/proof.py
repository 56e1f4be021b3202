"""What is shown of each planted bug. In several files, so that they can be run side by side."""

from __future__ import annotations

from collections.abc import Iterable

from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.finding import search, seeds_of


def is_found(bug: Bug) -> None:
    """Assert that the simulator finds a bug within its bound.

    Seeds that are known to find it come first, so this takes seconds. Nothing rests on them: when the storms are drawn
    otherwise, all seeds below the bound are tried.
    """
    found = search(bug, seeds_of(bug, hinted=True))
    assert found.outcome is not None, f"{bug.name} was not found in {found.runs} storms: {bug.does}"


def first_finders(bugs: Iterable[Bug]) -> list[int]:
    """Return the first seed that finds each of the bugs."""
    return sorted({bug.finders[0] for bug in bugs if bug.finders})

"""The proof of each planted bug. In several files, so that they can be run side by side."""

from __future__ import annotations

from itertools import islice

from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.finding import search, seeds_of

_MORE = 8
"""Storms that are tried when the seeds that are known to find a bug do not: enough for a bug that most storms find."""


def is_found(bug: Bug) -> None:
    """Assert that a seed that is known to find a bug still does, or one of the first few.

    Storms are drawn otherwise now and then. To look for new finders takes minutes, and is a task of its own.
    """
    found = search(bug, islice(seeds_of(bug, hinted=True), len(bug.finders) + _MORE))
    assert found.outcome is not None, (
        f"{bug.name} was not found in {found.runs} storms: {bug.does} Its finders no longer find it: look for new ones "
        f"with `python -m dueq_chaos.bugs --unhinted {bug.name}`"
    )

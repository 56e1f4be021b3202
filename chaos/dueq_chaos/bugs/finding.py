"""Does the simulator find a planted bug, and how soon?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from dueq_chaos.bugs import BUGS
from dueq_chaos.bugs.bug import Bug
from dueq_chaos.sim.storms.storm import Outcome, Storm


@dataclass(frozen=True)
class Search:
    """The result of a search.

    Attributes:
        bug: what was planted.
        runs: storms that were run.
        seconds: how long that took.
        outcome: of the storm that failed; None: nothing was found.
    """

    bug: Bug
    runs: int
    seconds: float
    outcome: Outcome | None


def seeds_of(bug: Bug, *, hinted: bool) -> Iterable[int]:
    """Return the seeds to try, in order.

    Args:
        bug: the planted bug.
        hinted: those that are known to find it come first; without, only the bound counts.
    """
    return dict.fromkeys([*(bug.finders if hinted else ()), *range(bug.seeds)])


def search(bug: Bug, seeds: Iterable[int], clock: Callable[[], float] = time.perf_counter) -> Search:
    """Run storms with the bug planted, until one fails that does not fail without it.

    Args:
        bug: what to plant.
        seeds: which storms.
        clock: seconds that only grow.

    Raises:
        BugRotten: the product has changed where the bug was.
    """
    began, runs = clock(), 0
    for seed in seeds:
        with bug.planted():
            outcome = Storm(seed).run()
        runs += 1
        if outcome.verdicts and is_harmless(seed):
            return Search(bug, runs, clock() - began, outcome)
    return Search(bug, runs, clock() - began, None)


@cache
def is_harmless(seed: int) -> bool:
    """Whether a storm finds nothing in the product as it is: only then does a verdict speak of a planted bug."""
    return not Storm(seed).run().verdicts


def run_seed(name: str, seed: int, minutes: float = 0.0) -> Outcome:
    """One storm with a bug planted, for other processes than this one: everything is named.

    Args:
        name: of a planted bug.
        seed: of the storm.
        minutes: how long the storm lasts (simulated); 0: some seconds.

    Raises:
        KeyError: there is no such bug.
        BugRotten: the product has changed where the bug was.
    """
    with BUGS[name].planted():
        return Storm(seed, minutes=minutes).run()

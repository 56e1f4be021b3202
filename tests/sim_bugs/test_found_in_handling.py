"""Planted bugs of users, leaders, memory, rules and upgrades are found; without them their seeds find nothing."""

from __future__ import annotations

from operator import attrgetter

import pytest

from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.finding import is_harmless
from dueq_chaos.bugs.handling import HANDLING
from dueq_chaos.bugs.memory import MEMORY
from dueq_chaos.bugs.rules import RULES
from dueq_chaos.bugs.standing import STANDING
from dueq_chaos.bugs.upgrading import UPGRADING
from dueq_chaos.bugs.waking import WAKING

from .proof import first_finders, is_found

BUGS = (*STANDING, *WAKING, *HANDLING, *MEMORY, *RULES, *UPGRADING)


@pytest.mark.parametrize("bug", BUGS, ids=attrgetter("name"))
def test_the_simulator_finds_it_within_its_bound(bug: Bug) -> None:
    is_found(bug)


@pytest.mark.parametrize("seed", first_finders(BUGS))
def test_without_a_bug_the_same_seed_reports_nothing(seed: int) -> None:
    assert is_harmless(seed)

"""Planted bugs of replicas and elections are found, and without them the same seeds find nothing."""

from __future__ import annotations

from operator import attrgetter

import pytest

from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.elections import ELECTIONS
from dueq_chaos.bugs.finding import is_harmless
from dueq_chaos.bugs.replication import REPLICATION

from .proof import first_finders, is_found

BUGS = (*ELECTIONS, *REPLICATION)


@pytest.mark.parametrize("bug", BUGS, ids=attrgetter("name"))
def test_the_simulator_finds_it_within_its_bound(bug: Bug) -> None:
    is_found(bug)


@pytest.mark.parametrize("seed", first_finders(BUGS))
def test_without_a_bug_the_same_seed_reports_nothing(seed: int) -> None:
    assert is_harmless(seed)

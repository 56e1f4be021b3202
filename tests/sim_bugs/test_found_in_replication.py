"""Planted bugs of replicas and elections are found."""

from __future__ import annotations

from operator import attrgetter

import pytest

from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.elections import ELECTIONS
from dueq_chaos.bugs.replication import REPLICATION

from .proof import is_found

BUGS = (*ELECTIONS, *REPLICATION)


@pytest.mark.by_turns
@pytest.mark.parametrize("bug", BUGS, ids=attrgetter("name"))
def test_the_simulator_finds_it_within_its_bound(bug: Bug) -> None:
    is_found(bug)

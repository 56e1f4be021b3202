"""Planted bugs of deliveries, clients, jobs, priority and fair topics are found."""

from __future__ import annotations

from operator import attrgetter

import pytest

from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.clients import CLIENTS
from dueq_chaos.bugs.delivering import DELIVERING
from dueq_chaos.bugs.fair import FAIR
from dueq_chaos.bugs.jobs import JOBS
from dueq_chaos.bugs.priority import PRIORITY

from .proof import is_found

BUGS = (*CLIENTS, *DELIVERING, *JOBS, *PRIORITY, *FAIR)


@pytest.mark.by_turns
@pytest.mark.parametrize("bug", BUGS, ids=attrgetter("name"))
def test_the_simulator_finds_it_within_its_bound(bug: Bug) -> None:
    is_found(bug)

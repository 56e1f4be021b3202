"""Planted bugs of stores, replicated state, shared bodies and small records are found."""

from __future__ import annotations

from operator import attrgetter

import pytest

from dueq_chaos.bugs.bodies import BODIES
from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.small import SMALL
from dueq_chaos.bugs.state import STATE
from dueq_chaos.bugs.storage import STORAGE

from .proof import is_found

BUGS = (*STATE, *STORAGE, *BODIES, *SMALL)


@pytest.mark.by_turns
@pytest.mark.parametrize("bug", BUGS, ids=attrgetter("name"))
def test_the_simulator_finds_it_within_its_bound(bug: Bug) -> None:
    is_found(bug)

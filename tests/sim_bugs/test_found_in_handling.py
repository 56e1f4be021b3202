"""Planted bugs of users, leaders, memory, rules and upgrades are found."""

from __future__ import annotations

from operator import attrgetter

import pytest

from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.handling import HANDLING
from dueq_chaos.bugs.keys import KEYS
from dueq_chaos.bugs.memory import MEMORY
from dueq_chaos.bugs.rules import RULES
from dueq_chaos.bugs.standing import STANDING
from dueq_chaos.bugs.upgrading import UPGRADING
from dueq_chaos.bugs.waking import WAKING

from .proof import is_found

BUGS = (*STANDING, *WAKING, *HANDLING, *MEMORY, *RULES, *UPGRADING, *KEYS)


@pytest.mark.by_turns
@pytest.mark.parametrize("bug", BUGS, ids=attrgetter("name"))
def test_the_simulator_finds_it_within_its_bound(bug: Bug) -> None:
    is_found(bug)

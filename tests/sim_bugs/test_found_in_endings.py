"""Planted bugs of endings, passes, conditions, pulls, recurrences and changes of topics are found."""

from __future__ import annotations

from operator import attrgetter

import pytest

from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.conditional import CONDITIONAL
from dueq_chaos.bugs.endings import ENDINGS
from dueq_chaos.bugs.recurring import RECURRING
from dueq_chaos.bugs.surgery import SURGERY
from dueq_chaos.bugs.topics import TOPICS

from .proof import is_found

BUGS = (*ENDINGS, *SURGERY, *CONDITIONAL, *RECURRING, *TOPICS)


@pytest.mark.by_turns
@pytest.mark.parametrize("bug", BUGS, ids=attrgetter("name"))
def test_the_simulator_finds_it_within_its_bound(bug: Bug) -> None:
    is_found(bug)

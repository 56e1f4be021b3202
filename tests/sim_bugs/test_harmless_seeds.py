"""Without a planted bug the seeds that find one report nothing: their verdicts speak of the bugs."""

from __future__ import annotations

import pytest

from dueq_chaos.bugs import BUGS
from dueq_chaos.bugs.finding import is_harmless


@pytest.mark.by_turns
@pytest.mark.parametrize("seed", sorted({bug.finders[0] for bug in BUGS.values() if bug.finders}))
def test_without_a_bug_the_same_seed_reports_nothing(seed: int) -> None:
    assert is_harmless(seed)

"""Planted bugs fit the product, and their places are looked after. That they are found is shown beside this file."""

from __future__ import annotations

from operator import attrgetter

import pytest

from dueq_chaos.bugs import BUGS
from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.finding import run_seed, search, seeds_of
from dueq_chaos.bugs.patching import BugRotten, Rewrite, function_of, rewritten
from dueq_chaos.bugs.prepared import PREPARED_UNSEEN
from dueq_chaos.bugs.staged import STAGED
from dueq_chaos.bugs.waking import UNSEEN


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", BUGS)
def test_the_simulator_finds_it_without_being_told_where(name: str) -> None:
    bug = BUGS[name]
    found = search(bug, seeds_of(bug, hinted=False))
    assert found.outcome is not None, f"{bug.name} was not found in {found.runs} storms: {bug.does}"


@pytest.mark.parametrize("bug", [*BUGS.values(), *UNSEEN, *STAGED, *PREPARED_UNSEEN], ids=attrgetter("name"))
def test_a_bug_fits_the_product_and_leaves_it_as_it_was(bug: Bug) -> None:
    """It changes what it says it changes, and everything is as before afterwards."""
    functions = [function_of(rewrite.target) for rewrite in bug.rewrites]
    before = [function.__code__ for function in functions]
    with bug.planted():
        assert all(function.__code__ != code for function, code in zip(functions, before, strict=True))
    assert [function.__code__ for function in functions] == before


@pytest.mark.parametrize(
    ("target", "old"),
    [
        ("dueq.core.replication.replica:Replica.no_such_method", "pass"),
        ("dueq.core.no_such_module:function", "pass"),
        ("dueq.core.replication.following:Following._truncate", "a text that is not there"),
        ("dueq.core.replication.following:Following._truncate", "self."),
        ("dueq.limits:RECORD_ROWS_MAX", "2048"),
    ],
    ids=["method gone", "module gone", "text gone", "text there more than once", "no function"],
)
def test_a_bug_whose_place_is_gone_fails_loudly(target: str, old: str) -> None:
    with pytest.raises(BugRotten, match="no longer fits"), rewritten([Rewrite(target, old, "")]):
        pass


def test_a_bug_that_does_not_fit_changes_nothing() -> None:
    fits = Rewrite("dueq.core.replication.standing:Standing.in_isr", "self.ctx.me in self.node.isr", "True")
    before = function_of(fits.target).__code__
    with pytest.raises(BugRotten), rewritten([fits, Rewrite(fits.target, "not there", "")]):
        pass
    assert function_of(fits.target).__code__ is before


def test_a_storm_with_a_bug_can_be_run_by_name() -> None:
    seed = BUGS["due-minus-one"].finders[0]
    outcome = run_seed("due-minus-one", seed)
    assert outcome.seed == seed
    assert "before it is due" in outcome.verdicts[0]

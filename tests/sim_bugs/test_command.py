"""`python -m dueq_chaos.bugs`: what is planted, and how soon it is found."""

from __future__ import annotations

from click.testing import CliRunner

from dueq_chaos.bugs import BUGS
from dueq_chaos.bugs.__main__ import main

WIDE = {"COLUMNS": "200"}


def test_the_list_says_what_every_bug_does() -> None:
    shown = CliRunner().invoke(main, ["--list"], env=WIDE)
    assert shown.exit_code == 0
    assert f"{len(BUGS)} planted bugs" in shown.output
    assert all(name in shown.output for name in BUGS)


def test_a_bug_that_is_found_is_shown_with_its_seed() -> None:
    bug = BUGS["due-minus-one"]
    shown = CliRunner().invoke(main, [bug.name], env=WIDE)
    assert shown.exit_code == 0
    assert "1 of 1 planted bugs found" in shown.output
    assert str(bug.finders[0]) in shown.output


def test_a_bug_that_should_have_been_found_and_was_not_is_a_failure() -> None:
    """One storm is too few for it."""
    shown = CliRunner().invoke(main, ["new-store-trusted", "--seeds", "1"], env=WIDE)
    assert shown.exit_code == 1
    assert "0 of 1 planted bugs found" in shown.output


def test_a_name_that_is_no_bug_is_refused() -> None:
    assert CliRunner().invoke(main, ["no-such-bug"]).exit_code == 2

"""Coverage of storms: counting does not change them, and shows what none has brought about."""

from __future__ import annotations

import sys

from click.testing import CliRunner

from dueq_chaos.sim.command import sim
from dueq_chaos.sim.coverage import Coverage, Watch
from dueq_chaos.sim.situations import SITUATIONS
from dueq_chaos.sim.storms.storm import Storm

SEED = 7


def test_a_storm_that_is_watched_tells_the_same_story() -> None:
    alone = Storm(SEED).run()
    with Watch().watching() as taken:
        watched = Storm(SEED).run()
    assert watched.trace == alone.trace
    assert taken.situations
    assert not taken.rotten
    assert all(taken.lines.values())


def test_the_product_is_as_it_was_afterwards() -> None:
    before = [getattr(found.owner, found.method) for found in SITUATIONS]
    with Watch().watching():
        during = [getattr(found.owner, found.method) for found in SITUATIONS]
    assert not set(during) & set(before)
    assert [getattr(found.owner, found.method) for found in SITUATIONS] == before
    assert sys.gettrace() is None


def test_a_line_is_noted_once_in_a_process_and_added_up_over_all() -> None:
    watch, coverage = Watch(), Coverage()
    for _ in range(2):
        with watch.watching() as taken:
            Storm(SEED).run()
        coverage.add(taken)
    assert not taken.lines, "the second time there is nothing new"
    assert coverage.storms == 2
    rarely = coverage.never[0]
    told = coverage.told()
    assert any(line.startswith("  none") and line.endswith(rarely) for line in told)
    assert any("Balance.tick" in line for line in told)
    assert not any("_Watch" in line or "dueq_chaos" in line for line in told)


def test_the_names_are_distinct_and_the_command_tells_them() -> None:
    names = [found.name for found in SITUATIONS]
    assert len(set(names)) == len(names)
    result = CliRunner().invoke(sim, ["--seeds", "1", "--first", str(SEED), "--jobs", "1", "--coverage"])
    assert result.exit_code == 0, result.output
    assert all(name in result.output for name in names)
    assert "lines of functions were never taken" in result.output

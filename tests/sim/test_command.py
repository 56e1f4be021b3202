"""`dueq-chaos sim`: what it prints, what it ends with, and how it makes a failure short."""

from __future__ import annotations

import re
from heapq import heappop

import pytest
from click.testing import CliRunner

from dueq.core.delivery.due_queue import DueQueue
from dueq_chaos.sim.command import sim
from dueq_chaos.sim.shrink import read, spell


@pytest.fixture
def bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug of seed 5, put back."""

    def pop_places(self: DueQueue, bound: int, limit: int) -> list[int]:
        heap = self._heap
        places: list[int] = []
        while heap and heap[0] < bound and len(places) < limit:
            place = heappop(heap)
            if not places or place != places[-1]:
                places.append(place)
        return places

    monkeypatch.setattr(DueQueue, "_pop_places", pop_places)


def test_seeds_without_a_failure_end_with_a_table_and_status_0() -> None:
    result = CliRunner().invoke(sim, ["--seeds", "2", "--first", "7", "--jobs", "1"])
    assert result.exit_code == 0, result.output
    assert "What the storms came to" in result.output
    assert "seeds 7 to 8" in result.output


def test_one_seed_prints_its_trace() -> None:
    result = CliRunner().invoke(sim, ["--seed", "7"])
    assert result.exit_code == 0, result.output
    assert "partition.served" in result.output
    assert "seed 7: nothing was harmed" in result.output


@pytest.mark.usefixtures("bug")
def test_a_failure_is_told_made_shorter_and_can_be_repeated() -> None:
    result = CliRunner().invoke(sim, ["--seed", "5", "--shrink", "5"])
    assert result.exit_code == 1
    assert re.search(r"✗ p1:\d+:\d+: ", result.output)
    found = re.search(r"this much of it: dueq-chaos sim --seed 5 --steps (\S+)", result.output)
    assert found is not None, result.output
    again = CliRunner().invoke(sim, ["--seed", "5", "--steps", found[1]])
    assert again.exit_code == 1
    assert "✗ p1:" in again.output


@pytest.mark.usefixtures("bug")
def test_a_failing_campaign_names_its_seeds_and_ends_with_1() -> None:
    result = CliRunner().invoke(sim, ["--seeds", "1", "--first", "5", "--jobs", "1", "--shrink", "0"])
    assert result.exit_code == 1
    assert "1 seeds failed: 5" in result.output
    assert "the whole of it: dueq-chaos sim --seed 5" in result.output


def test_steps_are_spelled_and_read_back() -> None:
    assert spell((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"
    assert read("0-2,5,7-8") == (0, 1, 2, 5, 7, 8)
    assert read(",") == ()
    result = CliRunner().invoke(sim, ["--seed", "7", "--steps", "x"])
    assert result.exit_code == 2

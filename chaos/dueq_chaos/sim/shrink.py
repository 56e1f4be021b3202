"""From a plan that fails to a short one that still does: delta debugging over its steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from dueq_chaos.sim.storms.plan import Plan, Step
from dueq_chaos.sim.storms.storm import Outcome, Storm


@dataclass
class Shrunk:
    """The shortest failing plan that was found.

    Attributes:
        kept: places of its steps in the seed's whole plan.
        runs: how many runs it took.
    """

    plan: Plan
    outcome: Outcome
    kept: tuple[int, ...]
    runs: int


def shrink(
    plan: Plan, outcome: Outcome, seconds: float, clock: Callable[[], float] = time.monotonic
) -> Shrunk:
    """Drop steps as long as the run still fails (in whatever way).

    Args:
        plan: one that fails.
        outcome: how.
        seconds: when to be content with the plan found so far.
        clock: seconds that only grow.
    """
    until = clock() + seconds
    best = Shrunk(plan, outcome, tuple(range(len(plan.steps))), 0)
    size = max(len(plan.steps) // 2, 1)
    while size and clock() < until:
        if not _drop_some(best, plan, size, lambda: clock() < until):
            size //= 2
    return best


def _drop_some(best: Shrunk, whole: Plan, size: int, go_on: Callable[[], bool]) -> bool:
    """Try to leave out each run of `size` steps; returns whether any could go."""
    dropped, at = False, 0
    while at < len(best.kept) and go_on():
        kept = best.kept[:at] + best.kept[at + size :]
        plan = part_of(whole, kept)
        best.runs += 1
        outcome = Storm(plan.seed, plan).run()
        if outcome.verdicts:
            best.plan, best.outcome, best.kept, dropped = plan, outcome, kept, True
        else:
            at += size
    return dropped


def part_of(plan: Plan, kept: tuple[int, ...]) -> Plan:
    """The same world with some of the steps only; it ends when it always did, or after the last of them."""
    steps: tuple[Step, ...] = tuple(plan.steps[at] for at in kept)
    return replace(plan, steps=steps)


def spell(kept: tuple[int, ...]) -> str:
    """Places as text: "0-3,7"."""
    runs: list[list[int]] = []
    for at in kept:
        if runs and runs[-1][1] == at - 1:
            runs[-1][1] = at
        else:
            runs.append([at, at])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def read(text: str) -> tuple[int, ...]:
    """Places from text.

    Raises:
        ValueError: it is not like "0-3,7".
    """
    kept: list[int] = []
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        kept.extend(range(int(low), int(high or low) + 1))
    return tuple(kept)

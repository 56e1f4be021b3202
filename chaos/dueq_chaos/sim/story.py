"""A failed run as a person reads it: what was done, what went wrong, and the lines that concern it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dueq_chaos.sim.storms.plan import Plan
from dueq_chaos.sim.storms.storm import Outcome

_TAIL_LINES = 25
_CONCERNED_LINES = 80
_MESSAGE = re.compile(r"\bp(\d+):(\d+):(\d+)\b")
_PARTITION = re.compile(r"\bp(\d+)\b|'uid': (\d+)\b")
_ALWAYS = (" fault  ", " VIOLATION  ", "FAILED", " crashed", " started, ")


def tell(outcome: Outcome, plan: Plan) -> list[str]:
    """The lines of the story, oldest first."""
    lines = [f"seed {outcome.seed}: {len(outcome.verdicts)} things that must not happen"]
    lines += [f"  ✗ {verdict}" for verdict in outcome.verdicts[:8]]
    if len(outcome.verdicts) > 8:
        lines.append(f"  … and {len(outcome.verdicts) - 8} more")
    lines += ["", f"what was done ({len(plan.steps)} steps, options {plan.options}):"]
    lines += [f"  {step.at_us / 1e6:10.3f} s  {step.kind}" for step in plan.steps]
    lines += ["", "what happened (time in s, who, what):"]
    return lines + concerned(outcome.trace, outcome.verdicts)


def concerned(trace: list[str], verdicts: Iterable[str]) -> list[str]:
    """The trace's last lines, and before them those that name a message or partition of a verdict."""
    text = " ".join(list(verdicts)[:8])
    messages = {found.group(0) for found in _MESSAGE.finditer(text)}
    partitions = {found.group(1) or found.group(2) for found in _PARTITION.finditer(text)}
    head, tail = trace[:-_TAIL_LINES], trace[-_TAIL_LINES:]
    chosen = [line for line in head if _concerns(line, messages, partitions)]
    left_out = len(chosen) - _CONCERNED_LINES
    shown = chosen[-_CONCERNED_LINES:]
    gap = [f"  … {left_out} earlier lines that concern it"] if left_out > 0 else []
    return [*gap, *shown, f"  … the last {len(tail)} lines:", *tail]


def _concerns(line: str, messages: set[str], partitions: set[str]) -> bool:
    if any(mark in line for mark in _ALWAYS):
        return True
    named = {found.group(0) for found in _MESSAGE.finditer(line)}
    if named:
        return bool(named & messages)
    return any((found.group(1) or found.group(2)) in partitions for found in _PARTITION.finditer(line))

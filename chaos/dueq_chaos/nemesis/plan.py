"""The faults and their times: pure data, made from a scenario or from a seed, and printed into the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Step:
    """One fault.

    Attributes:
        at_s: when it begins, seconds after the beginning of the faults.
        for_s: how long it lasts, seconds.
        kind: which (a key of `faults.FAULTS`).
        who: "leader" (of most partitions), "follower" (any other), a broker id, or "all"; chosen when it begins.
        amount: what the kind makes of it: ms of delay, share of lost segments, seconds of a clock.
    """

    at_s: float
    for_s: float
    kind: str
    who: str = "leader"
    amount: float = 0

    @property
    def end_s(self) -> float:
        """When it ends, seconds after the beginning of the faults."""
        return self.at_s + self.for_s


Plan = tuple[Step, ...]


def in_order(steps: Iterable[Step]) -> Plan:
    """Return steps by their beginning."""
    return tuple(sorted(steps, key=lambda step: (step.at_s, step.end_s, step.kind, step.who)))


def fitted(steps: Sequence[Step], duration_s: float) -> Plan:
    """Stretch or shrink a plan to a duration: beginnings in proportion, lengths never longer than they were.

    Args:
        steps: a scenario written for any length.
        duration_s: seconds by which the last of them has ended.
    """
    if not steps:
        return ()
    scale = duration_s / max(step.end_s for step in steps)
    if scale < 1:
        return in_order(replace(s, at_s=s.at_s * scale, for_s=s.for_s * scale) for s in steps)
    last = max(step.at_s for step in steps)
    length = max(step.for_s for step in steps if step.at_s == last)
    stretch = (duration_s - length) / last if last else 1.0
    return in_order(replace(s, at_s=s.at_s * stretch) for s in steps)


def one_after_another(plans: Sequence[Plan], duration_s: float) -> Plan:
    """Play several plans one after the other within a duration; each gets an equal share of it."""
    share = duration_s / max(len(plans), 1)
    return in_order(
        replace(step, at_s=step.at_s + number * share)
        for number, plan in enumerate(plans)
        for step in fitted(plan, share)
    )

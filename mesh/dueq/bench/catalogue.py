"""All measurements, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dueq.bench import (
    altering,
    backlog,
    bare,
    delivering,
    failover,
    far_ahead,
    keyed,
    kinds,
    lateness,
    looking,
    many_consumers,
    many_partitions,
    many_topics,
    primitives,
    pushing,
    scheduling,
    spark_loading,
    tabs,
    waiting,
    webhooks,
)
from dueq.bench.figures import Figure
from dueq.bench.stage import Stage


@dataclass(frozen=True)
class Measurement:
    """One measurement, several lines of the report.

    Attributes:
        name: for `--only`, and the first part of its rows' names.
        run: measures; raises when it cannot.
        quick: whether it is part of the quick run.
        full: whether it is part of the full run; otherwise only when asked for.
        needs: measurements whose figures it is held against.
    """

    name: str
    run: Callable[[Stage], list[Figure]]
    quick: bool = True
    full: bool = True
    needs: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Return a sentence that says what it measures."""
        return (self.run.__doc__ or "").partition("\n")[0]


MEASUREMENTS = (
    Measurement("primitives", primitives.measure),
    Measurement("bare", bare.measure),
    Measurement("push", pushing.measure),
    Measurement("bulk", scheduling.bulk),
    Measurement("sustained", scheduling.sustained, quick=False, full=False),
    Measurement("single", scheduling.single),
    Measurement("steady", delivering.steady),
    Measurement("instant", delivering.instant),
    Measurement("lateness-1000", lateness.slow),
    Measurement("lateness-5000", lateness.fast),
    Measurement("lateness-bulk", lateness.beside_bulk),
    Measurement("altering", altering.measure),
    Measurement("failover", failover.measure),
    Measurement("far-ahead", far_ahead.measure, quick=False, needs=("bare",)),
    Measurement("backlog", backlog.measure, quick=False, full=False),
    Measurement("keyed", keyed.measure, quick=False, full=False),
    Measurement("kinds", kinds.measure, quick=False, full=False),
    Measurement("groups", kinds.groups, quick=False, full=False),
    Measurement("recurrences", kinds.recurrences, quick=False, full=False),
    Measurement("spark", spark_loading.measure, quick=False, full=False, needs=("bare",)),
    Measurement("webhooks", webhooks.measure, quick=False, full=False),
    Measurement("tabs", tabs.measure, quick=False, full=False),
    Measurement("page-topics", looking.topics, quick=False, full=False),
    Measurement("page-second", looking.second, quick=False, full=False),
    Measurement("page-kill", looking.killed, quick=False, full=False),
    Measurement("waiting", waiting.measure, quick=False, full=False),
    Measurement("topics", many_topics.measure, quick=False, full=False),
    Measurement("partitions", many_partitions.measure, quick=False, full=False, needs=("bare", "push")),
    Measurement("consumers", many_consumers.consumers, quick=False, full=False, needs=("bare", "push")),
    Measurement("group", many_consumers.group, quick=False, full=False, needs=("bare", "push")),
)
NAMES = tuple(measurement.name for measurement in MEASUREMENTS)


def chosen(only: tuple[str, ...], quick: bool) -> list[Measurement]:
    """Which measurements to make.

    Args:
        only: names; empty for all of the run. The measurements that they are compared with come along.
        quick: whether it is the short run.
    """
    if not only:
        return [m for m in MEASUREMENTS if m.full and (m.quick or not quick)]
    wanted = set(only).union(*(m.needs for m in MEASUREMENTS if m.name in only))
    return [m for m in MEASUREMENTS if m.name in wanted]

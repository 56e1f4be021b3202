"""The deliveries, held against the data's own truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Departure:
    """One delivery, as a consumer printed it.

    Attributes:
        number: of the flight.
        desk: which consumer.
        due_ms, released_at_ms: as the mesh said, Unix ms.
        received_at_ms: when the consumer had it, Unix ms.
        attempt: 1 for the first.
    """

    number: int
    desk: int
    due_ms: int
    released_at_ms: float
    received_at_ms: float
    attempt: int


@dataclass(frozen=True)
class Report:
    """The numbers of one day.

    Attributes:
        scheduled, moved, cancelled: what the mesh confirmed; `moved_expected` and so on: what the data says.
        delivered: different flights that a consumer got.
        lost: flights that left in the data, but never here.
        duplicated: deliveries beyond the first of a flight.
        early: deliveries before the flight's instant, by the consumer's clock or the mesh's.
        ghosts: deliveries of cancelled flights.
        too_late: moves and cancels that the mesh refused.
        lateness_*_ms: from a flight's instant to the consumer's hands.
        killed: the broker that was killed, or nothing.
        spark_seconds: how long Spark took to schedule.
    """

    day: str
    scheduled: int
    scheduled_expected: int
    moved: int
    moved_expected: int
    cancelled: int
    cancelled_expected: int
    delivered: int
    delivered_expected: int
    lost: int
    duplicated: int
    early: int
    ghosts: int
    too_late: int
    lateness_p50_ms: float
    lateness_p99_ms: float
    lateness_max_ms: float
    killed: str
    spark_seconds: float

    @property
    def good(self) -> bool:
        """Nothing was lost, delivered twice, early or though cancelled, and all is as in the data."""
        wrong = self.lost + self.duplicated + self.early + self.ghosts + self.too_late
        confirmed = (self.scheduled, self.moved, self.cancelled, self.delivered)
        truth = (
            self.scheduled_expected,
            self.moved_expected,
            self.cancelled_expected,
            self.delivered_expected,
        )
        return wrong == 0 and confirmed == truth

    def document(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        return asdict(self) | {"good": self.good}

    def print(self) -> None:
        """Print it as a table."""
        way = f"broker {self.killed} killed on the way" if self.killed else "no broker killed"
        table = Table(title=f"{self.day}, {way}")
        for column in ("", "here", "in the data"):
            table.add_column(column, justify="right" if column else "left")
        for name in ("scheduled", "moved", "cancelled", "delivered"):
            here, truth = getattr(self, name), getattr(self, f"{name}_expected")
            table.add_row(name, f"{here:,}", f"{truth:,}", style="" if here == truth else "bold red")
        table.add_section()
        for name in ("lost", "duplicated", "early", "ghosts", "too_late"):
            count = getattr(self, name)
            table.add_row(name.replace("_", " "), f"{count:,}", "0", style="bold red" if count else "green")
        table.add_section()
        for name in ("p50", "p99", "max"):
            table.add_row(f"lateness {name}", f"{getattr(self, f'lateness_{name}_ms'):,.1f} ms", "")
        table.add_row("Spark's job", f"{self.spark_seconds:.1f} s", "")
        Console().print(table)


def judge(
    day: str,
    truth: Mapping[int, int | None],
    departures: Sequence[Departure],
    *,
    scheduled: int,
    moved: int,
    cancelled: int,
    moved_expected: int,
    too_late: int,
    killed: str,
    spark_seconds: float,
) -> Report:
    """Hold the deliveries against the truth.

    Args:
        day: its name.
        truth: by flight, the instant (Unix ms) at which it had to be delivered; None: never.
        departures: everything that the consumers got, in any order.
        scheduled: messages that Spark's job reported.
        moved, cancelled: confirmed by the mesh.
        moved_expected: how many flights the data has as delayed.
        too_late: moves and cancels that were refused.
        killed: the broker that was killed, or nothing.
        spark_seconds: how long Spark took.
    """
    expected = {number: due for number, due in truth.items() if due is not None}
    delivered = {departure.number for departure in departures}
    wanted = [departure for departure in departures if departure.number in expected]
    lateness = sorted(departure.received_at_ms - expected[departure.number] for departure in wanted)
    early = sum(
        min(d.received_at_ms, d.released_at_ms) < expected[d.number] or d.due_ms < expected[d.number]
        for d in wanted
    )
    return Report(
        day=day,
        scheduled=scheduled, scheduled_expected=len(truth),
        moved=moved, moved_expected=moved_expected,
        cancelled=cancelled, cancelled_expected=len(truth) - len(expected),
        delivered=len(delivered & expected.keys()), delivered_expected=len(expected),
        lost=len(expected.keys() - delivered),
        duplicated=len(departures) - len(delivered),
        early=early,
        ghosts=len(delivered - expected.keys()),
        too_late=too_late,
        lateness_p50_ms=_quantile(lateness, 0.50),
        lateness_p99_ms=_quantile(lateness, 0.99),
        lateness_max_ms=_quantile(lateness, 1.0),
        killed=killed,
        spark_seconds=round(spark_seconds, 3),
    )  # fmt: skip


def _quantile(ascending: Sequence[float], share: float) -> float:
    if not ascending:
        return 0.0
    return round(ascending[min(len(ascending) - 1, int(share * len(ascending)))], 3)

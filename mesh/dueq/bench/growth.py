"""How costs grow with size: the same measured at several sizes.

A figure of a series is named `series@size`; `Series` brings the figures of one cost together again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dueq.bench.figures import Figure, Row, Target


@dataclass(frozen=True)
class Cost:
    """One cost that is measured at every size.

    Attributes:
        name: unique, `measurement/part`.
        what: in words, short: it is the title of a small plot.
        unit: of the values.
        bare: the name of the bare row that it is held against; "" for none.
        better_high: whether more is better, as of rates.
        targets: what it shall reach, by size.
    """

    name: str
    what: str
    unit: str
    bare: str = ""
    better_high: bool = False
    targets: Mapping[int, Target] = field(default_factory=dict)

    def row(self, size: int) -> Row:
        """The row of one size."""
        return Row(
            f"{self.name}@{size}", self.what, self.unit, self.targets.get(size), self.bare,
            size=size, better_high=self.better_high,
        )  # fmt: skip


class Sheet:
    """Collects values while a measurement runs, in any order.

    Args:
        costs: what is measured.
    """

    def __init__(self, costs: Sequence[Cost]) -> None:
        self._costs = {cost.name.partition("/")[2]: cost for cost in costs}
        self._values: dict[tuple[str, int], list[float]] = {}

    def add(self, part: str, size: int, *values: float) -> None:
        """Note values of one cost (the part of its name behind the `/`) at one size, one per run."""
        assert part in self._costs, part
        self._values.setdefault((part, size), []).extend(values)

    def figures(self) -> list[Figure]:
        """All that was measured, cost by cost, sizes ascending."""
        return [
            Figure(cost.row(size), tuple(self._values[part, size]))
            for part, cost in self._costs.items()
            for size in sorted(size for name, size in self._values if name == part)
        ]


@dataclass(frozen=True)
class Series:
    """One cost at all sizes.

    Attributes:
        name: `measurement/part`.
        figures: sizes ascending, at least one.
    """

    name: str
    figures: tuple[Figure, ...]

    @property
    def row(self) -> Row:
        """Words and unit, the same at every size."""
        return self.figures[0].row

    @property
    def order(self) -> float | None:
        """The exponent of growth between the two largest sizes: 1 is linear, 0 does not grow, 2 is quadratic.

        None where there is one size only, or a value of 0.
        """
        if len(self.figures) < 2:
            return None
        (a, b) = self.figures[-2:]
        if a.median <= 0 or b.median <= 0:
            return None
        return math.log(b.median / a.median) / math.log(b.row.size / a.row.size)


def series_of(figures: Iterable[Figure]) -> list[Series]:
    """Return the series among figures, in their order; figures without a size or a value are left out."""
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure.row.size and figure.runs:
            found.setdefault(figure.row.name.partition("@")[0], []).append(figure)
    return [
        Series(name, tuple(sorted(parts, key=lambda figure: figure.row.size)))
        for name, parts in found.items()
    ]

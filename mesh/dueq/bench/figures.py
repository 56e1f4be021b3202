"""The figures that are measured, and their results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


def percentile(values: npt.ArrayLike, share: float) -> float:
    """Return the smallest value that at least `share` of all values do not exceed (nearest rank).

    Args:
        values: numbers in any order, at least one.
        share: 0 < share ≤ 1; 0.99 is the 99th percentile.

    Raises:
        ValueError: there are no values.
    """
    ranked = np.sort(np.asarray(values, np.float64))
    if not len(ranked):
        raise ValueError("no values, no percentile")
    return float(ranked[max(0, math.ceil(share * len(ranked)) - 1)])


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two in the middle."""
    return float(np.median(np.asarray(values, np.float64)))


@dataclass(frozen=True)
class Target:
    """The value that a figure shall reach.

    Attributes:
        at_least, at_most: bounds, None for none.
        bare_share: least share of the bare figure, None for none.
    """

    at_least: float | None = None
    at_most: float | None = None
    bare_share: float | None = None

    def met(self, value: float, ratio: float | None) -> bool:
        """Whether a value, and its ratio to the bare figure, reach everything that is asked."""
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.bare_share is None or ratio is None or ratio >= self.bare_share)
        )

    def document(self) -> dict[str, float]:
        """The bounds that there are, by name."""
        bounds = {"at_least": self.at_least, "at_most": self.at_most, "bare_share": self.bare_share}
        return {name: bound for name, bound in bounds.items() if bound is not None}


@dataclass(frozen=True)
class Row:
    """One line of the report, before it is measured.

    Attributes:
        name: unique, `measurement/part`.
        what: in words.
        unit: of the values.
        target: None where there is none.
        bare: the name of the bare row that it is held against; "" for none.
        size: at which it is measured, where it is one of a series (see `growth`); else 0.
        better_high: whether more is better; for series only.
    """

    name: str
    what: str
    unit: str
    target: Target | None = None
    bare: str = ""
    size: int = 0
    better_high: bool = False


@dataclass(frozen=True)
class Figure:
    """One line of the report, measured, or the reason why it was not.

    Attributes:
        row: what was to be measured.
        runs: one value per run; empty when it failed.
        error: why it failed; "" when it did not.
    """

    row: Row
    runs: tuple[float, ...] = ()
    error: str = ""

    @property
    def median(self) -> float:
        """The median of all runs."""
        return median(self.runs)

    def ratio(self, figures: Mapping[str, Figure]) -> float | None:
        """The median divided by that of the bare figure; None where there is no such figure."""
        bare = figures.get(self.row.bare)
        if bare is None or not bare.runs or not self.runs or bare.median == 0:
            return None
        return self.median / bare.median

    def met(self, figures: Mapping[str, Figure]) -> bool | None:
        """Whether the target is reached; None without a target or a value."""
        if self.row.target is None or not self.runs:
            return None
        return self.row.target.met(self.median, self.ratio(figures))

    def document(self, figures: Mapping[str, Figure]) -> dict[str, Any]:
        """Everything about it, fit for JSON."""
        row = self.row
        found: dict[str, Any] = {"name": row.name, "what": row.what, "unit": row.unit}
        if row.size:
            found["size"] = row.size
        if self.error:
            return found | {"error": self.error}
        found |= {
            "median": self.median,
            "min": min(self.runs),
            "max": max(self.runs),
            "runs": list(self.runs),
        }
        if row.target is not None:
            found |= {"target": row.target.document(), "met": self.met(figures)}
        ratio = self.ratio(figures)
        if ratio is not None:
            found |= {"bare": row.bare, "ratio": ratio}
        return found


def figures_of(rows: Sequence[Row], runs: Sequence[Mapping[str, float]]) -> list[Figure]:
    """Put the runs of a measurement together.

    Args:
        rows: what was measured.
        runs: per run the value of each row, by name.
    """
    return [Figure(row, tuple(run[row.name] for run in runs)) for row in rows]

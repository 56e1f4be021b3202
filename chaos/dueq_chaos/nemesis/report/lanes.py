"""Where the bars of the faults lie: by lane, in rows where neither bars nor labels overlap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dueq_chaos.nemesis.conductor import Happening

LANES = ("processes", "network", "zookeeper", "disk", "clock", "consumers")
_LETTER_PX = 6.1
_GAP_PX = 10.0
_BAR_PX_MIN = 3.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One fault, drawn.

    Attributes:
        lane: its heading.
        row: within the lane, from 0.
        x, width: px.
        label_x: where the label begins; inside the bar where it fits, else behind it (before it at the right edge).
        inside: whether the label is inside.
        happening: the fault.
    """

    lane: str
    row: int
    x: float
    width: float
    label_x: float
    inside: bool
    happening: Happening


def lay_out(happenings: Iterable[Happening], start_s: float, px_per_s: float, width_px: float) -> list[Bar]:
    """Place every fault, in the order of lanes and beginnings.

    Args:
        happenings: the faults; what still lasts goes to the right edge.
        start_s: the instant at the left edge, `time.monotonic()`.
        px_per_s: the scale.
        width_px: of the whole.
    """
    bars: list[Bar] = []
    rows: dict[str, list[float]] = {}
    for happening in sorted(happenings, key=lambda found: found.begin_s):
        x = max((happening.begin_s - start_s) * px_per_s, 0.0)
        end = width_px if happening.end_s is None else (happening.end_s - start_s) * px_per_s
        width = max(min(end, width_px) - x, _BAR_PX_MIN)
        label = len(happening.text) * _LETTER_PX
        inside = label + _GAP_PX <= width
        label_x = x + 5 if inside else x + width + 4
        if not inside and label_x + label > width_px:
            label_x = max(x - 4 - label, 0.0)
        left = min(x, label_x)
        right = max(x + width, label_x + label) + _GAP_PX
        row = _place(rows.setdefault(happening.lane, []), left, right)
        bars.append(Bar(happening.lane, row, x, width, label_x, inside, happening))
    return sorted(bars, key=lambda bar: LANES.index(bar.lane))


def rows_of(bars: Sequence[Bar]) -> dict[str, int]:
    """How many rows each lane needs; lanes without bars are left out."""
    return {
        lane: 1 + max(bar.row for bar in bars if bar.lane == lane)
        for lane in LANES
        if any(bar.lane == lane for bar in bars)
    }


def _place(ends: list[float], left: float, right: float) -> int:
    """Find the first row that is free from `left` on, and take it until `right`."""
    for row, end in enumerate(ends):
        if end <= left:
            ends[row] = right
            return row
    ends.append(right)
    return len(ends) - 1

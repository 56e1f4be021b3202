"""Messages per minute, before and after, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dueq.campaign.counts import Counts
from dueq.errors import InvalidRequest

if TYPE_CHECKING:
    from dueq.campaign.planning import Plan

_BARS_MAX: Final = 1500
_STEPS_MIN: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
_WIDTH_IN, _HEIGHT_IN, _DPI = 11.0, 4.2, 120
_BEFORE, _AFTER, _EXISTING = "#b5b5b5", "#1f5fa8", "#e0a030"


def draw(plan: Plan, file: Path) -> None:
    """Draw a plan into a PNG: as asked for in grey, as it will leave in blue, what waits already in yellow.

    Where the time is too long for its minutes, each point is the fullest minute of several.

    Raises:
        InvalidRequest: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidRequest("a plot needs matplotlib: pip install 'dueq[spark,plot]'") from error
    canvas = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.add_subplot()
    step = _step(plan)
    if plan.after.total:
        if plan.existing.total:
            _area(axes, plan.existing, step, _EXISTING, "waiting already", 0.5)
        _area(axes, plan.before, step, _BEFORE, "as asked for", 0.6)
        _area(axes, plan.after, step, _AFTER, "as they will leave", 0.55)
        axes.legend(loc="upper right", frameon=False)
        locator = AutoDateLocator()
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set_ylim(bottom=0)
    axes.set_ylabel("messages per minute" if step == 1 else f"messages per minute\n(fullest of {step})")
    axes.set_xlabel("UTC")
    report = plan.report
    axes.set_title(f"{report.name}: {report.messages:,} messages in {report.topic}", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    canvas.savefig(file, format="png")


def _step(plan: Plan) -> int:
    """Minutes for each point: the fewest with which there are not too many points."""
    at = np.concatenate([plan.before.at, plan.after.at])
    span = int(at.max() - at.min()) + 1 if len(at) else 1
    return next((step for step in _STEPS_MIN if span <= step * _BARS_MAX), span // _BARS_MAX + 1)


def _area(axes: Any, counts: Counts, step: int, color: str, label: str, alpha: float) -> None:
    """One series as steps; between its minutes there is nothing."""
    place, fullest = _fullest(counts, step)
    first = int(place[0])
    heights = np.zeros(int(place[-1]) - first + 3, np.int64)
    heights[place - first + 1] = fullest
    edges = (np.arange(len(heights), dtype=np.int64) + first - 1) * step
    axes.fill_between(
        edges.astype("datetime64[m]"),
        heights,
        step="post",
        color=color,
        alpha=alpha,
        linewidth=0,
        label=label,
    )


def _fullest(counts: Counts, step: int) -> tuple[Any, Any]:
    place = counts.at // step
    starts = np.flatnonzero(np.diff(place, prepend=place[0] - 1))
    return place[starts], np.maximum.reduceat(counts.count, starts)

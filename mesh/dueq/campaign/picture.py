"""Messages per minute, before and after, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dueq.campaign.counts import Counts
from dueq.errors import InvalidRequest

if TYPE_CHECKING:
    from dueq.campaign.planning import Plan

_BARS_MAX: Final = 1500
_STEPS_MIN: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
_WIDTH_IN, _HEIGHT_IN, _DPI = 11.0, 5.2, 120
_BEFORE, _AFTER, _EXISTING, _LIMIT = "#8a8a8a", "#1f5fa8", "#e0a030", "#b03030"


def draw(plan: Plan, file: Path) -> None:
    """Draw a plan into a PNG: above as asked for, below as it will leave, upon what waits already.

    If the time is too long to show every minute, each point is the fullest minute of several.

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
    # Each has a scale of its own: beside a crowd that comes at once, its spread form would hardly be seen.
    asked, leaving = canvas.subplots(2, 1, sharex=True)
    step, report = _step(plan), plan.report
    _panel(asked, [(plan.before, _BEFORE, "as asked for")], step)
    # One upon the other: their sum is what consumers will have to do.
    together = plan.after.added(plan.existing)
    _panel(
        leaving,
        [(together, _AFTER, "as they will leave"), (plan.existing, _EXISTING, "waiting already")],
        step,
    )
    if report.per_second is not None:
        leaving.axhline(60 * report.per_second, color=_LIMIT, linewidth=1, linestyle="--", label="limit")
        _explain(leaving)
    if plan.after.total:
        locator = AutoDateLocator()
        leaving.xaxis.set_major_locator(locator)
        leaving.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    leaving.set_xlabel("UTC")
    canvas.supylabel("messages per minute" + ("" if step == 1 else f" (fullest of {step})"), size="medium")
    asked.set_title(f"{report.name}: {report.messages:,} messages in {report.topic}", loc="left")
    canvas.savefig(file, format="png")


def _panel(axes: Any, series: Sequence[tuple[Counts, str, str]], step: int) -> None:
    for counts, color, label in series:
        if counts.total:
            _area(axes, counts, step, color, label)
            _explain(axes)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)


def _explain(axes: Any) -> None:
    """Outside of the axes, where it covers nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _step(plan: Plan) -> int:
    """Minutes for each point: the fewest with which there are not too many points."""
    at = np.concatenate([plan.before.at, plan.after.at, plan.existing.at])
    span = int(at.max() - at.min()) + 1 if len(at) else 1
    return next((step for step in _STEPS_MIN if span <= step * _BARS_MAX), span // _BARS_MAX + 1)


def _area(axes: Any, counts: Counts, step: int, color: str, label: str) -> None:
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
        linewidth=0,
        label=label,
    )


def _fullest(counts: Counts, step: int) -> tuple[Any, Any]:
    place = counts.at // step
    starts = np.flatnonzero(np.diff(place, prepend=place[0] - 1))
    return place[starts], np.maximum.reduceat(counts.count, starts)

"""How costs grow, as a picture: one small plot per cost, both axes logarithmic, next to a line of slope 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dueq.bench.growth import Series
from dueq.bench.numbers import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 4
_WIDTH_IN, _HEIGHT_IN, _HEAD_IN = 3.4, 2.5, 0.9
_DPI = 110
_LINE, _GUIDE, _WORSE, _TEXT = "#1f5fa8", "#b5b5b5", "#c4371b", "#303030"
_STEEP = 1.15
_DECADES_MIN = 1.0
"""The least range of a plot: a cost that does not grow must look flat."""


def draw(series: Sequence[Series], path: Path, caption: str) -> None:
    """Draw all series into a PNG.

    Args:
        series: at least one.
        path: of the picture.
        caption: the line below the title: when, and on what machine.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    groups = _groups(series)
    rows = sum(math.ceil(len(group) / _COLUMNS) for group in groups)
    height_in = rows * _HEIGHT_IN + _HEAD_IN
    engine = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.1, rect=(0, 0, 1, 1 - _HEAD_IN / height_in))
    canvas = Canvas(figsize=(_COLUMNS * _WIDTH_IN, height_in), dpi=_DPI, layout=engine)
    FigureCanvasAgg(canvas)
    canvas.text(0.01, 1 - 0.25 / height_in, "What grows, and how", size=15, weight="bold", va="center")
    legend = (
        "median of the runs and their span, log–log; grey: growing as the size does (slope 1); "
        "red: faster than that"
    )
    canvas.text(0.01, 1 - 0.52 / height_in, legend, size=9, color=_TEXT, va="center")
    canvas.text(0.01, 1 - 0.74 / height_in, caption, size=9, color=_TEXT, va="center")
    grid = canvas.add_gridspec(rows, _COLUMNS)
    row = 0
    for group in groups:
        for place, one in enumerate(group):
            _draw_one(canvas.add_subplot(grid[row + place // _COLUMNS, place % _COLUMNS]), one)
        row += math.ceil(len(group) / _COLUMNS)
    canvas.savefig(path)


def _groups(series: Sequence[Series]) -> list[list[Series]]:
    """Each measurement begins a new line."""
    together: dict[str, list[Series]] = {}
    for one in series:
        together.setdefault(one.name.partition("/")[0], []).append(one)
    return list(together.values())


def _draw_one(axes: Axes, series: Series) -> None:
    sizes = [figure.row.size for figure in series.figures]
    medians = [figure.median for figure in series.figures]
    order = series.order
    worse = order is not None and order > _STEEP and not series.row.better_high
    color = _WORSE if worse else _LINE
    axes.set_xscale("log")
    positive = all(min(figure.runs) > 0 for figure in series.figures)
    if positive:
        axes.set_yscale("log")
        _limit(axes, [run for figure in series.figures for run in figure.runs])
        _guide(axes, sizes, medians, series.row.better_high)
    for figure in series.figures:
        axes.plot([figure.row.size] * 2, [min(figure.runs), max(figure.runs)], color=color, lw=4, alpha=0.3)
    axes.plot(sizes, medians, color=color, marker="o", ms=4, lw=1.6)
    for size, value in zip(sizes, medians, strict=True):
        axes.annotate(
            number(value), (size, value), xytext=(0, 6), textcoords="offset points", ha="center", size=8,
            color=_TEXT,
        )  # fmt: skip
    axes.set_title(f"{series.name.partition('/')[0]}: {series.row.what}", size=9, loc="left", color=_TEXT)
    axes.set_ylabel(series.row.unit, size=8)
    _dress(axes, sizes)


def _limit(axes: Axes, values: list[float]) -> None:
    """At least a decade, the values in its middle, room for the numbers above them."""
    low, high = math.log10(min(values)), math.log10(max(values))
    spare = max(_DECADES_MIN - (high - low), 0.0) / 2
    axes.set_ylim(10 ** (low - spare - 0.15), 10 ** (high + spare + 0.35))


def _guide(axes: Axes, sizes: list[int], medians: list[float], falls: bool) -> None:
    """Slope 1 (of a rate: -1) through the first value, as far as it is in the picture."""
    low, high = axes.get_ylim()
    slope = -1 if falls else 1
    values = [medians[0] * (size / sizes[0]) ** slope for size in sizes]
    axes.plot(sizes, values, color=_GUIDE, lw=1, ls="--", zorder=0)
    axes.set_ylim(low, high)


def _dress(axes: Axes, sizes: list[int]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    axes.set_xlim(sizes[0] / 1.7, sizes[-1] * 1.7)
    axes.xaxis.set_major_locator(FixedLocator([float(size) for size in sizes]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=8, length=2)
    axes.grid(True, which="major", axis="y", color="#e6e6e6", lw=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _short(value: Any) -> str:
    for bound, letter in ((1e6, "M"), (1e3, "k")):
        if value >= bound:
            return f"{value / bound:g}{letter}"
    return f"{value:g}"

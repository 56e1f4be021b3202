"""The picture: faults above rates above lateness, on one axis of time, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from html import escape

import numpy as np

from dueq_chaos.nemesis.outcome import Outcome
from dueq_chaos.nemesis.report.lanes import Bar, lay_out, rows_of
from dueq_chaos.nemesis.series import Column

_LEFT, _WIDTH, _RIGHT = 92, 1060, 16
_ROW, _BAR = 21, 17
_LANE_GAP = 7
_RATE, _LATE = 150, 190
_GAP = 44
_LATE_MS_MIN, _LATE_MS_MAX = 1.0, 100_000.0
_LATE_MARKS = {1: "1 ms", 10: "10 ms", 100: "100 ms", 1_000: "1 s", 10_000: "10 s", 100_000: "100 s"}
_TICKS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600)
_TICKS_MAX = 14


class Drawing:
    """One picture.

    Args:
        outcome: what to show.
    """

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        series = outcome.series
        self._start_s = series.start_s
        self._seconds = len(series.delivered)
        self._scale = _WIDTH / self._seconds
        self._bars = lay_out(outcome.happenings, self._start_s, self._scale, _WIDTH)
        self._rows = rows_of(self._bars)

    def svg(self) -> str:
        """The picture as one `<svg>` element."""
        lanes_height = sum(rows * _ROW + _LANE_GAP for rows in self._rows.values()) or _ROW
        rate_top = lanes_height + _GAP
        late_top = rate_top + _RATE + _GAP
        height = late_top + _LATE + 40
        parts = [
            *self._shade(lanes_height, late_top + _LATE),
            *self._lanes(),
            *self._deaths(late_top + _LATE),
            *self._rates(rate_top),
            *self._lateness(late_top),
            *self._time_axis(late_top + _LATE),
        ]
        total = _LEFT + _WIDTH + _RIGHT
        return (
            f'<svg viewBox="0 0 {total} {height}" role="img" aria-label="Faults, rates and lateness over time">'
            f'<g transform="translate({_LEFT},18)">{"".join(parts)}</g></svg>'
        )

    # ------------------------------------------------------------ faults

    def _shade(self, top: float, bottom: float) -> Iterator[str]:
        """While something is broken, everything below is shaded."""
        for bar in self._bars:
            yield (
                f'<rect class="shade" x="{bar.x:.1f}" y="{top:.1f}" width="{bar.width:.1f}" '
                f'height="{bottom - top:.1f}"/>'
            )

    def _lanes(self) -> Iterator[str]:
        top = 0.0
        for lane, rows in self._rows.items():
            yield f'<text class="lane" x="-10" y="{top + _BAR - 4:.1f}">{escape(lane)}</text>'
            yield _across("rule", top + rows * _ROW + 1)
            for bar in self._bars:
                if bar.lane == lane:
                    yield self._bar(bar, top + bar.row * _ROW)
            top += rows * _ROW + _LANE_GAP
        if not self._rows:
            yield '<text class="note" x="4" y="14">no faults</text>'

    def _bar(self, bar: Bar, y: float) -> str:
        fault = bar.happening
        begin = fault.begin_s - self._start_s
        end = "?" if fault.end_s is None else f"{fault.end_s - self._start_s:.1f}"
        trouble = f"\n{fault.trouble}" if fault.trouble else ""
        return (
            f"<g><title>{escape(fault.text)}\n{begin:.1f} s to {end} s{escape(trouble)}</title>"
            f'<rect class="bar {bar.lane}" x="{bar.x:.1f}" y="{y:.1f}" width="{bar.width:.1f}" height="{_BAR}" rx="2"/>'
            f'<text class="{"in" if bar.inside else "out"}" x="{bar.label_x:.1f}" y="{y + 12.5:.1f}">'
            f"{escape(fault.text)}</text></g>"
        )

    def _deaths(self, bottom: float) -> Iterator[str]:
        for at_s, text in self._outcome.deaths:
            x = (at_s - self._start_s) * self._scale
            yield (
                f"<g><title>{escape(text)}</title>"
                f'<line class="death" x1="{x:.1f}" x2="{x:.1f}" y1="-4" y2="{bottom:.1f}"/>'
                f'<text class="death" x="{x:.1f}" y="-7">✝</text></g>'
            )

    # ------------------------------------------------------------ curves

    def _rates(self, top: float) -> Iterator[str]:
        series = self._outcome.series
        highest = _round_up(float(max(series.scheduled.max(), series.delivered.max(), 1)))

        def y(value: float) -> float:
            return top + _RATE * (1 - value / highest)

        marks = [(y(highest * share), f"{highest * share:g}") for share in (0, 0.5, 1)]
        yield from self._frame(top, "messages per second", marks)
        steps = self._steps(series.delivered, y)
        yield f'<path class="area" d="{steps} L{_WIDTH},{y(0):.1f} L0,{y(0):.1f} Z"/>'
        yield f'<path class="delivered" d="{steps}"/>'
        yield f'<path class="scheduled" d="{self._steps(series.scheduled, y)}"/>'
        yield from self._legend(top, (("delivered", "delivered"), ("scheduled", "scheduled")))

    def _lateness(self, top: float) -> Iterator[str]:
        decades = math.log10(_LATE_MS_MAX / _LATE_MS_MIN)

        def y(value: float) -> float:
            inside = min(max(value, _LATE_MS_MIN), _LATE_MS_MAX)
            return top + _LATE * (1 - math.log10(inside / _LATE_MS_MIN) / decades)

        yield from self._frame(
            top, "lateness (arrival − due)", [(y(ms), text) for ms, text in _LATE_MARKS.items()]
        )
        series = self._outcome.series
        for name, column in (("max", series.max_ms), ("p99", series.p99_ms), ("p50", series.p50_ms)):
            yield f'<path class="{name}" d="{self._steps(column, y)}"/>'
        yield from self._legend(top, (("p50", "p50"), ("p99", "p99"), ("max", "max")))

    def _steps(self, column: Column, y: Callable[[float], float]) -> str:
        """A curve of steps, one a second; nothing where there is no number."""
        path, pen_down = [], False
        for second, value in enumerate(column):
            if np.isnan(value):
                pen_down = False
                continue
            left, right = second * self._scale, (second + 1) * self._scale
            path.append(f"{'L' if pen_down else 'M'}{left:.1f},{y(value):.1f} H{right:.1f}")
            pen_down = True
        return " ".join(path)

    def _frame(self, top: float, title: str, marks: list[tuple[float, str]]) -> Iterator[str]:
        yield f'<text class="title" x="0" y="{top - 8:.1f}">{escape(title)}</text>'
        for y, text in marks:
            yield _across("grid", y)
            yield f'<text class="mark" x="-8" y="{y + 4:.1f}">{text}</text>'

    def _legend(self, top: float, names: tuple[tuple[str, str], ...]) -> Iterator[str]:
        x = _WIDTH - 92.0 * len(names)
        for kind, text in names:
            yield f'<path class="{kind}" d="M{x:.1f},{top - 12:.1f} h22"/>'
            yield f'<text class="note" x="{x + 28:.1f}" y="{top - 8:.1f}">{text}</text>'
            x += 92

    def _time_axis(self, y: float) -> Iterator[str]:
        every = next((s for s in _TICKS_S if self._seconds / s <= _TICKS_MAX), _TICKS_S[-1])
        for second in range(0, self._seconds + 1, every):
            x = second * self._scale
            yield f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + 5:.1f}"/>'
            yield f'<text class="time" x="{x:.1f}" y="{y + 18:.1f}">{second // 60}:{second % 60:02d}</text>'


def _across(kind: str, y: float) -> str:
    return f'<line class="{kind}" x1="0" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 5, 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 4, 5, 10) if power * step >= value)

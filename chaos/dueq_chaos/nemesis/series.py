"""A history second by second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dueq_chaos.history.columns import History
from dueq_chaos.history.operations import FOREVER, Told

Column = npt.NDArray[np.float64]
_SECOND_US = 1_000_000


@dataclass(frozen=True)
class Series:
    """One entry a second.

    Attributes:
        start_s: where the first second begins, seconds of the monotonic clock.
        scheduled: messages acknowledged, by their acknowledgement.
        delivered: messages that came, repeated ones too, by their arrival.
        p50_ms, p99_ms, max_ms: lateness of the first deliveries that arrived in the second: arrival less due, by the
            machine's clock; NaN where none arrived.
    """

    start_s: float
    scheduled: Column
    delivered: Column
    p50_ms: Column
    p99_ms: Column
    max_ms: Column

    @classmethod
    def of(cls, history: History, start_s: float, end_s: float) -> Series:
        """Measure a history.

        Args:
            history: of the clients.
            start_s, end_s: what to look at, seconds of the monotonic clock.
        """
        seconds = max(int(np.ceil(end_s - start_s)), 1)
        start_us = int(start_s * _SECOND_US)
        acknowledged = history.operations.completed[history.inserts.operation]
        acknowledged = acknowledged[history.inserts.columns["told"] == Told.DONE]
        arrived = history.operations.completed[history.deliveries.operation]
        late_ms = (history.clock.wall(arrived) - history.deliveries.columns["due"] * 1000) / 1000
        first = history.deliveries.columns["attempt"] == 1
        quantiles = _quantiles(_second(arrived[first], start_us), late_ms[first], seconds)
        return cls(
            start_s,
            _count(_second(acknowledged[acknowledged < FOREVER], start_us), seconds),
            _count(_second(arrived, start_us), seconds),
            *quantiles,
        )


def _second(instants_us: npt.NDArray[np.int64], start_us: int) -> npt.NDArray[np.int64]:
    return (instants_us - start_us) // _SECOND_US


def _count(second: npt.NDArray[np.int64], seconds: int) -> Column:
    inside = second[(second >= 0) & (second < seconds)]
    return np.bincount(inside, minlength=seconds).astype(np.float64)


def _quantiles(second: npt.NDArray[np.int64], value: Column, seconds: int) -> tuple[Column, Column, Column]:
    result = tuple(np.full(seconds, np.nan) for _ in range(3))
    for number in np.unique(second):
        if 0 <= number < seconds:
            values = value[second == number]
            for column, found in zip(result, (*np.quantile(values, (0.5, 0.99)), values.max()), strict=True):
                column[number] = found
    return result[0], result[1], result[2]

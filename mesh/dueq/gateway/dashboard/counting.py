"""Seconds that brokers only estimate, counted one by one: those of the topics on open pages, now and then.

A broker has the soonest messages of a partition in memory, and knows of later ones how many wait in each hour. A
million messages at one second are more than memory holds. So the seconds that an open page shows are counted in the
index: of one topic at a time, up to a bounded number of messages, and with rests in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dueq import limits
from dueq.client import surveys
from dueq.errors import DueqError
from dueq.gateway.dashboard.snapshot import Ahead, Wanted
from dueq.gateway.service import Service

_EVERY_MS: Final = 30_000
"""A topic is not counted again before this."""
_APART_MS: Final = 5_000
"""No topic is counted sooner after another one."""
_PATIENCE_S: Final = 20.0
_REST: Final = 20
"""No topic is counted before this many times the length of the last count is over."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """The result of a count.

    Attributes:
        at_ms: when.
        begin_ms, end_ms: of the seconds that were counted.
        counts: messages by second, Unix ms.
        complete: all of them.
    """

    at_ms: int
    begin_ms: int
    end_ms: int
    counts: Mapping[int, int]
    complete: bool


class Counting:
    """The counts of topics, and the count under way."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: dict[str, _Counted] = {}
        self._task: asyncio.Task[None] | None = None
        self._counted_ms = 0
        self._rest_ms = _APART_MS

    def improved(self, forecasts: Mapping[Wanted, Ahead], at_ms: int) -> dict[Wanted, Ahead]:
        """Return forecasts with counts in place of estimates; have the oldest counted anew."""
        found, due = dict(forecasts), list[tuple[int, str, int, int]]()
        for (name, seconds), ahead in forecasts.items():
            end_ms = at_ms + seconds * 1000
            exact_ms = ahead.exact_until_ms
            if seconds > limits.FORECAST_SECONDS_MAX or exact_ms is None or exact_ms >= end_ms:
                continue
            begin_ms = max(exact_ms, at_ms) // 1000 * 1000
            known = self._known.get(name)
            if known is not None and (known.begin_ms > begin_ms or known.end_ms < end_ms - 2 * _EVERY_MS):
                known = None
            if known is None or known.at_ms <= at_ms - _EVERY_MS:
                due.append((known.at_ms if known is not None else 0, name, begin_ms, end_ms))
            if known is not None:
                found[name, seconds] = _improved(ahead, known, begin_ms)
        names = {name for name, _ in forecasts}
        self._known = {name: known for name, known in self._known.items() if name in names}
        if due and (self._task is None or self._task.done()) and at_ms >= self._counted_ms + self._rest_ms:
            self._counted_ms = at_ms
            self._task = asyncio.create_task(self._count(*min(due)[1:], at_ms))
        return found

    async def close(self) -> None:
        """Count no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _count(self, name: str, begin_ms: int, end_ms: int, at_ms: int) -> None:
        length = min(-(-(end_ms - begin_ms) // 1000) + _EVERY_MS // 1000, limits.FORECAST_SECONDS_MAX)
        begun_s = time.monotonic()
        steps = surveys.seconds(name, begin_ms, length, limits.DASHBOARD_COUNTED_MAX)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                counted = await self._service.client.connection.follow(steps, _PATIENCE_S)
        except (DueqError, TimeoutError):
            return  # it is estimated meanwhile
        finally:
            self._rest_ms = max(_APART_MS, int(_REST * 1000 * (time.monotonic() - begun_s)))
        self._known[name] = _Counted(
            at_ms, begin_ms, begin_ms + length * 1000, dict(counted.counts), counted.complete
        )


def _improved(ahead: Ahead, known: _Counted, begin_ms: int) -> Ahead:
    """Put counts in place of estimates; where not all was counted, the count is a lower bound."""
    told = dict(ahead.counts)
    estimated = {second: count for second, count in told.items() if begin_ms <= second < known.end_ms}
    counted = {second: count for second, count in known.counts.items() if second >= begin_ms}
    if not known.complete:
        counted = {
            second: max(estimated.get(second, 0), counted.get(second, 0))
            for second in estimated.keys() | counted.keys()
        }
    kept = {second: count for second, count in told.items() if second not in estimated}
    more = {
        second: counted.get(second, 0) - estimated.get(second, 0)
        for second in estimated.keys() | counted.keys()
    }
    until_ms = known.end_ms if known.complete else ahead.exact_until_ms
    return Ahead(sorted((kept | counted).items()), until_ms, more)

"""The display for a person who watches: present faults, rates, lateness, and a line for every event."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dueq_chaos.nemesis.conductor import Conductor
from dueq_chaos.nemesis.target import Target
from dueq_chaos.nemesis.traffic.fleet import Fleet

_EVERY_S = 0.5
_WINDOW_S = 2.0


class Screen:
    """The terminal. If it is no terminal (a file, a pipe), only the lines are written.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._start_s = time.monotonic()
        self._next_s = 0.0
        self._past: list[tuple[float, int, int]] = []

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def begin(self) -> None:
        """Count the time from now."""
        self._start_s = time.monotonic()

    def say(self, text: str) -> None:
        """Write a line."""
        now = time.monotonic() - self._start_s
        self._console.print(Text.assemble((f"{now:7.1f} s  ", "dim"), text))

    def show(self, phase: str, target: Target, conductor: Conductor, fleet: Fleet, rest_s: float) -> None:
        """Show where things stand; a call too soon after the last one is dropped."""
        now = time.monotonic()
        if now < self._next_s or not self._console.is_terminal:
            return
        self._next_s = now + _EVERY_S
        self._live.update(self._picture(phase, target, conductor, fleet, rest_s), refresh=True)

    def _picture(
        self, phase: str, target: Target, conductor: Conductor, fleet: Fleet, rest_s: float
    ) -> Group:
        counters = fleet.counters
        scheduled, delivered = sum(counters.scheduled.values()), sum(counters.delivered.values())
        per_s = self._rates(scheduled, delivered)
        serving, partitions = target.placement.serving()
        late = counters.late_ms[-500:]
        quantiles = np.quantile(late, (0.5, 0.99, 1)) if late else (0, 0, 0)
        table = Table.grid(padding=(0, 3))
        table.add_row("scheduled", f"{scheduled:,}", f"{per_s[0]:,.0f}/s")
        table.add_row("delivered", f"{delivered:,}", f"{per_s[1]:,.0f}/s")
        table.add_row("late, ms", "p50 {:,.0f}   p99 {:,.0f}   max {:,.0f}".format(*quantiles), "last 500")
        table.add_row(
            "partitions served", f"{serving} of {partitions}", f"most by {target.placement.leader()}"
        )
        broken = [Text(f"  ✗ {happening.text}", style="bold red") for happening in conductor.broken]
        head = Text(f"{phase}, {rest_s:.0f} s left", style="bold")
        return Group(head, table, *(broken or [Text("  all is well", style="green")]))

    def _rates(self, scheduled: int, delivered: int) -> tuple[float, float]:
        now = time.monotonic()
        self._past = [found for found in self._past if found[0] > now - _WINDOW_S]
        self._past.append((now, scheduled, delivered))
        then, scheduled_then, delivered_then = self._past[0]
        seconds = max(now - then, _EVERY_S)
        return (scheduled - scheduled_then) / seconds, (delivered - delivered_then) / seconds

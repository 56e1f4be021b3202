"""The departure board, and the two desks (consumer processes) whose departures it shows."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from dueq.demo.flights import Flight
from dueq.demo.report import Departure
from dueq.lifeline import child_environment

_LINES = 18
_END_S = 10.0


class Desk:
    """One consumer: a `dueq consume` process that prints what it gets, and acknowledges it."""

    def __init__(
        self, number: int, topic: str, endpoints: Sequence[str], on_departure: Callable[[Departure], None]
    ) -> None:
        """Start the process.

        Args:
            number: 1, 2, …
            topic: to consume.
            endpoints: of the mesh.
            on_departure: called in a thread of its own for each message.
        """
        self.number = number
        self._on_departure = on_departure
        where = [word for endpoint in endpoints for word in ("--endpoint", endpoint)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dueq.cli.main", "consume", topic, "--json", *where],
            stdout=subprocess.PIPE, start_new_session=True, env=child_environment(),
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """Not None once the process has ended."""
        return self._process.poll()

    def close(self) -> None:
        """End the process and take the last of what it printed."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_END_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._on_departure(self._departure(json.loads(line)))

    def _departure(self, message: dict[str, Any]) -> Departure:
        return Departure(
            number=int(message["payload"]),
            desk=self.number,
            due_ms=message["due"],
            released_at_ms=message["released_at"],
            received_at_ms=message["received_at"],
            attempt=message["attempt"],
        )


class Board:
    """Shows departures as they come: a live table on a terminal, lines elsewhere, nothing when quiet."""

    def __init__(self, flights: Mapping[int, Flight], day: str, quiet: bool, address: str = "") -> None:
        """Begin.

        Args:
            flights: of the day, by number.
            day: YYYY-MM-DD.
            quiet: show nothing.
            address: of the page that shows more; "": there is none.
        """
        self._flights, self._day, self._quiet, self._address = flights, day, quiet, address
        self._console = Console()
        self._recent: deque[tuple[Flight, Departure]] = deque(maxlen=_LINES)
        self._news = ""
        self._lock = threading.Lock()
        self._live: Live | None = None
        self.departures: list[Departure] = []

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(console=self._console, refresh_per_second=15, get_renderable=self._table)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, departure: Departure) -> None:
        """Take one departure; called by the desks' threads."""
        with self._lock:
            self.departures.append(departure)
            flight = self._flights[departure.number]
            self._recent.append((flight, departure))
            if self._live is None and not self._quiet:
                self._console.print("  ".join(_cells(flight, departure)), highlight=False)

    def tell(self, news: str) -> None:
        """Show a line of news."""
        self._news = news
        if self._live is None and not self._quiet:
            self._console.print(f"-- {news}", highlight=False)

    def count(self) -> int:
        """Different flights that have departed."""
        with self._lock:
            return len({departure.number for departure in self.departures})

    def _table(self) -> Table:
        with self._lock:
            table = Table(
                title=f"Departures, New York, {self._day}",
                caption=f"{self._news}\n{self._address}".strip(),
                min_width=70,
            )
            for column in ("time", "flight", "from", "to", "", "desk", "late"):
                table.add_column(column, justify="right" if column == "late" else "left")
            for flight, departure in self._recent:
                table.add_row(*_cells(flight, departure))
            return table


def _cells(flight: Flight, departure: Departure) -> list[str]:
    remark = f"[yellow]+{flight.delay_minutes} min[/]" if flight.delayed else "[green]on time[/]"
    late = departure.received_at_ms - departure.due_ms
    return [
        flight.clock, f"{flight.code:<8}", flight.origin, flight.destination, remark,
        f"desk {departure.desk}", f"{late:.1f} ms",
    ]  # fmt: skip

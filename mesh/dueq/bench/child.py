"""A task in a process of its own: the child's side (`python -m dueq.bench.child`).

The parent pickles the task into standard input, then writes the lines `go` and `stop` to it. The child answers
on standard output with pickled pairs (`News`).
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
import traceback
from typing import IO, Any, Protocol

from dueq.lifeline import die_with_parent

News = tuple[str, Any]
"""("ready", None), ("count", how many are done), then ("result", what `run` returned) or ("failed", why)."""

_COUNT_EVERY_S = 0.005


class Task(Protocol):
    """The work of a worker; has to be picklable."""

    def run(self, line: Line) -> Any:
        """Do it, and return the result."""


class Line:
    """The line to the parent.

    Attributes:
        stopped: the parent wants no more.
    """

    def __init__(self, orders: IO[bytes], news: IO[bytes]) -> None:
        self._orders, self._news = orders, news
        self._go = threading.Event()
        self.stopped = threading.Event()
        self._told_at_s = 0.0
        threading.Thread(target=self._listen, daemon=True).start()

    def ready(self) -> None:
        """Say that everything is prepared, and wait until the parent says go."""
        self.tell("ready")
        self._go.wait()

    def count(self, done: int, at_once: bool = False) -> None:
        """Say how many are done; not more often than every 5 ms, unless `at_once`."""
        now_s = time.monotonic()
        if at_once or now_s - self._told_at_s >= _COUNT_EVERY_S:
            self._told_at_s = now_s
            self.tell("count", done)

    def tell(self, name: str, value: Any = None) -> None:
        """Send one piece of news."""
        pickle.dump((name, value), self._news)
        self._news.flush()

    def _listen(self) -> None:
        for order in self._orders:
            (self._go if order == b"go\n" else self.stopped).set()
        self.stopped.set()
        self._go.set()


def main() -> None:
    """Run the task that comes in on standard input."""
    die_with_parent()
    news = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not get between the news
    task: Task = pickle.load(sys.stdin.buffer)
    line = Line(sys.stdin.buffer, news)
    try:
        result = task.run(line)
    except Exception as error:
        traceback.print_exc()
        line.tell("failed", f"{type(task).__name__}: {type(error).__name__}: {error}")
        os._exit(1)
    line.tell("result", result)
    # The listening thread still reads from standard input, which an orderly exit would wait for.
    os._exit(0)


if __name__ == "__main__":
    main()

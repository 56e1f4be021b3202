"""Tasks in processes of their own: the parent's side."""

from __future__ import annotations

import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from dueq.bench.child import News, Task
from dueq.errors import DueqError
from dueq.lifeline import child_environment

_POLL_S = 0.005


class WorkerFailed(DueqError):
    """A worker process failed, ended, or was not done in time."""


class Worker:
    """One process with one task. Start it from a thread that lives as long as the process must.

    Attributes:
        done: how many the task has counted so far.
    """

    def __init__(self, task: Task) -> None:
        self._name = type(task).__name__
        self.done = 0
        self._events: queue.Queue[News] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dueq.bench.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=child_environment(), start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        pickle.dump(task, self._process.stdin)
        self._process.stdin.flush()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until it has prepared everything. Raises WorkerFailed."""
        self._expect("ready", timeout_s)

    def go(self) -> None:
        """Let it begin."""
        self._order(b"go\n")

    def stop(self) -> None:
        """Tell it that it is enough; its result follows."""
        self._order(b"stop\n")

    def result(self, timeout_s: float) -> Any:
        """Wait for what its task returns. Raises WorkerFailed."""
        return self._expect("result", timeout_s)

    def check(self) -> None:
        """Raise WorkerFailed if it has failed."""
        try:
            event = self._events.get_nowait()
        except queue.Empty:
            return
        if event[0] == "failed":
            raise WorkerFailed(event[1])
        self._events.put(event)

    def kill(self) -> None:
        """End it at once, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    def _order(self, words: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(words)
            self._process.stdin.flush()
        except BrokenPipeError:
            self.check()

    def _expect(self, name: str, timeout_s: float) -> Any:
        try:
            found, value = self._events.get(timeout=timeout_s)
        except queue.Empty:
            raise WorkerFailed(f"{self._name} was not {name} within {timeout_s:g} s") from None
        if found != name:
            raise WorkerFailed(value if found == "failed" else f"{self._name}: {found}, not {name}")
        return value

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while True:
                name, value = pickle.load(self._process.stdout)
                if name == "count":
                    self.done = value
                    continue
                self._events.put((name, value))
                if name in ("result", "failed"):
                    return
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            self._events.put(("failed", f"{self._name} ended with code {self._process.wait()}"))


class Crew:
    """The workers of one run; none outlives the `with`."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.kill()

    def start(self, *tasks: Task, timeout_s: float = 30.0) -> list[Worker]:
        """Start workers and return them once all are ready; they begin with `go`. Raises WorkerFailed."""
        workers = []
        for task in tasks:
            workers.append(Worker(task))
            self._workers.append(workers[-1])
        for worker in workers:
            worker.wait_ready(timeout_s)
        return workers

    def wait(self, until: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until something is so; raises WorkerFailed when a worker fails or time runs out."""
        deadline_s = time.monotonic() + timeout_s
        while not until():
            for worker in self._workers:
                worker.check()
            if time.monotonic() > deadline_s:
                done = ", ".join(str(worker.done) for worker in self._workers)
                raise WorkerFailed(f"{what}: not within {timeout_s:g} s (done: {done})")
            time.sleep(_POLL_S)


def finish(workers: Sequence[Worker], timeout_s: float = 60.0) -> list[Any]:
    """Tell workers that it is enough and return their results. Raises WorkerFailed."""
    for worker in workers:
        worker.stop()
    return [worker.result(timeout_s) for worker in workers]

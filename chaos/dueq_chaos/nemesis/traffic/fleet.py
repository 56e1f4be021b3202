"""All processes of the traffic."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import IO

from dueq.lifeline import child_environment
from dueq_chaos.history.operations import VERSION
from dueq_chaos.nemesis.traffic import topics
from dueq_chaos.nemesis.traffic.specification import (
    CALM,
    CONSUMER,
    KEYING,
    PRODUCER,
    STOP,
    TICKING,
    Specification,
)

_LATENESS_KEPT = 2000
_CARELESS = ((topics.TIMELINE, 0.02), (topics.TIMELINE, 0.15), (topics.RANKED, 0.05), (topics.SHARED, 0.05))
_KEYED_SHARE = 0.1


@dataclass
class Counters:
    """The reports of the processes about themselves.

    Attributes:
        scheduled, delivered: by process.
        late_ms: lateness of the latest first deliveries.
        busy: whether a process has something to finish before it is calm; those that say so.
    """

    scheduled: dict[str, int] = field(default_factory=dict)
    delivered: dict[str, int] = field(default_factory=dict)
    late_ms: list[float] = field(default_factory=list)
    busy: dict[str, bool] = field(default_factory=dict)


class _Worker:
    """One process, with a thread that reads its counters."""

    def __init__(self, specification: Specification, log: IO[bytes], counters: Counters) -> None:
        self.specification = specification
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dueq_chaos.nemesis.traffic.worker", specification.as_text()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            env=child_environment(), start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(counters,))
        self._reader.start()

    def tell(self, word: str) -> None:
        """Give an order; it does not matter where the process has ended."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()
        except OSError:
            return

    def end(self, timeout_s: float) -> bool:
        """Wait for the end, and force it when time is over; returns whether it came by itself."""
        try:
            self.process.wait(timeout_s)
            by_itself = True
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            by_itself = False
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        return by_itself

    def _read(self, counters: Counters) -> None:
        assert self.process.stdout is not None
        name = self.specification.name
        for line in self.process.stdout:
            try:
                found = json.loads(line)
            except ValueError:
                continue  # the last line of a process that was killed
            if "scheduled" in found:
                counters.scheduled[name] = found["scheduled"]
            if "delivered" in found:
                counters.delivered[name] = found["delivered"]
                counters.late_ms = (counters.late_ms + found["late_ms"])[-_LATENESS_KEPT:]
            if "busy" in found:
                counters.busy[name] = found["busy"]


class Fleet:
    """Producers and consumers. Start it from a thread that lives as long as the process must.

    Args:
        folder: gets histories and logs; made here.
        endpoints: of the mesh, which has the topics of the traffic.
        rate: messages per second.
        seed: of everybody's whims.

    Attributes:
        counters: as last heard.
        failures: processes that ended by themselves: name and exit code.
    """

    def __init__(self, folder: Path, endpoints: Sequence[str], rate: float, seed: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._log = (folder / "traffic.log").open("ab")
        self._random = Random(seed)
        self._numbers = itertools.count(1)
        self._base = Specification("", "", tuple(endpoints), "", "", seed)
        self._rate = rate
        self.counters = Counters()
        self.failures: list[str] = []
        self._producers: list[_Worker] = []
        self._consumers: list[_Worker] = []
        self._missing: list[_Worker] = []
        self._noting: list[_Worker] = []
        self._going_on = True

    @property
    def histories(self) -> list[Path]:
        """Every process's history file, sorted."""
        return sorted(self._folder.glob("*.jsonl"))

    def notes(self, role: str) -> list[Path]:
        """Return the files of those that keep notes instead, of one role."""
        return sorted(self._folder.glob(f"*.{role}"))

    def start(self) -> None:
        """Start all."""
        self._producers.append(self._worker(replace(self._base, role=PRODUCER, name="p1", rate=self._rate)))
        for topic, careless in _CARELESS:
            self._add_consumer(replace(self._base, role=CONSUMER, topic=topic, careless=careless))
        keyed = replace(
            self._base, role=KEYING, name="k1", topic=topics.KEYED, rate=self._rate * _KEYED_SHARE
        )
        ticking = replace(self._base, role=TICKING, name="t1", topic=topics.TICKING)
        self._noting += [self._worker(keyed), self._worker(ticking)]

    def kill_consumer(self) -> str:
        """`kill -9` one consumer, and return its name."""
        if not self._consumers:
            return "no consumer"
        worker = self._consumers.pop(self._random.randrange(len(self._consumers)))
        worker.process.kill()
        self._missing.append(worker)
        return worker.specification.name

    def restore_consumers(self) -> None:
        """Start another consumer for each that was killed."""
        missing, self._missing = self._missing, []
        for worker in missing:
            worker.end(5)
            self._add_consumer(worker.specification)

    def look(self) -> None:
        """Note the processes that have ended without being told to."""
        for workers in (self._producers, self._consumers, self._noting):
            for worker in [worker for worker in workers if worker.process.poll() is not None]:
                workers.remove(worker)
                worker.end(5)
                if worker.process.returncode == 0 and not self._going_on:
                    continue
                self.failures.append(f"{worker.specification.name} ended with {worker.process.returncode}")

    def note_faults(self, faults: Iterable[tuple[float, str]]) -> None:
        """Write faults into a history of their own, beside the clients'.

        Args:
            faults: (`time.monotonic()`, text).
        """
        lines = [
            {"event": "note", "text": text, "us": _wall_us(at_s), "mono": int(at_s * 1e6)}
            for at_s, text in faults
        ]
        head = {"dueq_history": VERSION}
        text = "".join(json.dumps(line) + "\n" for line in (head, *lines))
        (self._folder / "faults.jsonl").write_text(text, encoding="utf-8")

    def stop_producing(self) -> None:
        """Let producers find out what is open and end; consumers acknowledge all from now on."""
        self._going_on = False
        for worker in self._producers:
            worker.tell(STOP)
        for worker in [*self._consumers, *self._noting]:
            worker.tell(CALM)

    def producing(self) -> bool:
        """Whether a process still schedules, or asks for outcomes."""
        runs = any(worker.process.poll() is None for worker in self._producers)
        return runs or any(self.counters.busy.get(worker.specification.name, True) for worker in self._noting)

    def stop(self, timeout_s: float) -> None:
        """End everybody; may be called at any time, also again.

        Args:
            timeout_s: until processes that still run are killed.
        """
        workers = [*self._producers, *self._consumers, *self._noting]
        for worker in workers:
            worker.tell(STOP)
        for worker in [*workers, *self._missing]:
            worker.end(timeout_s)
        self._producers, self._consumers, self._missing, self._noting = [], [], [], []
        if not self._log.closed:
            self._log.close()

    def _add_consumer(self, specification: Specification) -> None:
        self._consumers.append(self._worker(replace(specification, name=f"c{next(self._numbers)}")))

    def _worker(self, specification: Specification) -> _Worker:
        ending = specification.role if specification.role in (KEYING, TICKING) else "jsonl"
        path = self._folder / f"{specification.name}.{ending}"
        seed = self._random.getrandbits(32)
        return _Worker(replace(specification, history=str(path), seed=seed), self._log, self.counters)


def _wall_us(at_s: float) -> int:
    return time.time_ns() // 1000 - int((time.monotonic() - at_s) * 1e6)

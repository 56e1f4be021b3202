"""The tools of a measurement: fresh meshes, topics, workers, repetition."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dueq import Client
from dueq.bench.figures import Figure, Row, figures_of
from dueq.bench.growth import Cost, Sheet
from dueq.bench.workers import Crew
from dueq.local import LocalMesh


@dataclass
class Stage:
    """One run of the benchmark, as the measurements see it.

    Attributes:
        folder: for data; everything in it is removed as soon as it is not needed.
        quick: whether this is the short run.
        huge: whether what takes very long is measured, too.
        runs_of_each: of what grows, how often each size is measured; 0 for the run's own number.
        say: shows what is going on.
    """

    folder: Path
    quick: bool
    huge: bool
    runs_of_each: int
    say: Callable[[str], None]
    _names: Iterator[int] = field(default_factory=itertools.count)
    _sheets: list[Sheet] = field(default_factory=list)

    def pick(self, full: int, quick: int) -> int:
        """One number for the full run, another for the short one."""
        return quick if self.quick else full

    @property
    def runs(self) -> int:
        """How often each size of what grows is measured."""
        return self.runs_of_each or self.pick(3, 1)

    def sheet(self, costs: Sequence[Cost]) -> Sheet:
        """Holds the values of a measurement; they are kept if it fails."""
        self._sheets.append(Sheet(costs))
        return self._sheets[-1]

    def take_noted(self) -> list[Figure]:
        """Return what was noted since the last call."""
        sheets, self._sheets = self._sheets, []
        return [figure for sheet in sheets for figure in sheet.figures()]

    @contextmanager
    def fresh_folder(self) -> Iterator[Path]:
        """An empty folder, removed at the end."""
        folder = self.folder / str(next(self._names))
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def mesh(self, brokers: int = 3) -> Iterator[tuple[LocalMesh, Client, Crew]]:
        """A fresh mesh with a real ZooKeeper, a client of it, and a crew to start workers with."""
        with (
            self.fresh_folder() as folder,
            LocalMesh(folder, brokers) as mesh,
            Client(mesh.endpoints) as client,
            Crew() as crew,
        ):
            yield mesh, client, crew

    def topic(self, client: Client, partitions: int, replicas: int) -> str:
        """Make a topic and return its name."""
        name = f"bench-{next(self._names)}"
        client.create_topic(name, partitions=partitions, replicas=replicas)
        return name

    def repeat(self, rows: Sequence[Row], runs: int, once: Callable[[], Mapping[str, float]]) -> list[Figure]:
        """Measure several times.

        Args:
            rows: what `once` measures.
            runs: how often.
            once: returns the value of every row, by name.
        """
        values = []
        for run in range(runs):
            self.say(f"{rows[0].name}, run {run + 1} of {runs}")
            values.append(once())
        return figures_of(rows, values)

"""Every kind of store that is installed, and the simulator's disk: as a place where a store is opened and killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dueq.core.ports.effects import Persist
from dueq.core.ports.persistence import StoreWrite
from dueq.storage.kinds import Opening, StoreKind, kind_of, names, open_store
from dueq.storage.port import Store
from dueq_chaos.sim.environment.disk import SimDisk
from dueq_chaos.sim.environment.world import World

SIMULATED = "simulated"
BROKER = "b1"
MEMORY_BYTES = 256 << 20


class Place:
    """The folder in which one broker's store is opened, and left by a killed process."""

    durable: bool

    def open(self) -> Store:
        """Open the store as a starting broker does."""
        raise NotImplementedError

    def kill(self) -> None:
        """The process that holds the store ends without a word."""
        raise NotImplementedError

    def clear(self) -> None:
        """The test is over."""


class KindPlace(Place):
    """A kind's own place. Copy the files as they are now: a killed process leaves just that.

    `tests/integration/test_power_cuts.py` cuts the power of the LevelDB store, which leaves less.
    """

    def __init__(self, kind: StoreKind, parent: Path) -> None:
        self.kind, self.durable, self._parent = kind, kind.durable, parent
        self._lives: list[Store] = []
        self.folder = parent / "life-0"

    def open(self) -> Store:
        folder = self.folder if self.durable else None
        self._lives.append(open_store(self.kind, Opening(BROKER, folder, MEMORY_BYTES)))
        return self._lives[-1]

    def kill(self) -> None:
        left = self._parent / f"life-{len(self._lives)}"
        if self.durable:
            shutil.copytree(self.folder, left)
        self.folder = left

    def clear(self) -> None:
        for store in self._lives:
            store.close()


class SimPlace(Place):
    """The simulator's disk."""

    durable = True

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.disk = SimDisk(self.world, BROKER)

    def open(self) -> Store:
        return self.disk.open()

    def kill(self) -> None:
        self.disk.crash()

    def kill_during(self, writes: list[StoreWrite]) -> None:
        """The process is killed while it commits a group: some of it is there, or all, or nothing."""
        self.disk.persist(Persist(1, writes), lambda event: None)
        self.disk.crash()


def place_of(name: str, parent: Path) -> Place:
    if name == SIMULATED:
        return SimPlace(1)
    return KindPlace(kind_of(name), parent)


EVERY = [*names(), SIMULATED]


@pytest.fixture(params=EVERY)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = place_of(request.param, tmp_path)
    yield found
    found.clear()


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Callable[[str], Place]]:
    """Makes further places."""
    made: list[Place] = []

    def make(name: str) -> Place:
        made.append(place_of(name, tmp_path / f"another-{len(made)}"))
        return made[-1]

    yield make
    for place in made:
        place.clear()

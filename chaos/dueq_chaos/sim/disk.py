"""A simulated disk: the real store on memory engines, with time, and with crashes at awkward moments."""

from __future__ import annotations

from collections.abc import Callable

from dueq.core.effects import Persist
from dueq.core.events import Event, Persisted
from dueq.core.persistence import StoreRead, StoreWrite
from dueq.storage.memory import MemoryEngine
from dueq.storage.store import Store
from dueq_chaos.sim.world import World


class SimDisk:
    """What survives a crash, and how long writing and reading takes.

    Attributes:
        slow_us: added to every commit.
    """

    def __init__(self, world: World, owner: str) -> None:
        self._world, self._owner = world, owner
        self.timeline = MemoryEngine()
        self.payload = MemoryEngine()
        self.store: Store | None = None
        self.slow_us = 0
        self._waiting: list[tuple[Persist, Callable[[Event], None]]] = []
        self._busy = False
        self._life = 0

    def open(self) -> Store:
        """Begin a new life of the process on what is there."""
        self._life += 1
        self._waiting = []
        self._busy = False
        fresh = f"{self._world.random.getrandbits(64):016x}"
        self.store = Store.on(
            self.timeline, self.payload, broker_id=self._owner, cluster_id="sim", store_id=fresh
        )
        return self.store

    def lose(self) -> None:
        """The disk is replaced by an empty one."""
        self.timeline = MemoryEngine()
        self.payload = MemoryEngine()

    def crash(self) -> None:
        """The process is gone; of what it had ordered, a prefix may still have reached the disk."""
        self._life += 1
        store, waiting = self.store, self._waiting
        self.store, self._waiting = None, []
        if store is not None:
            for persist, _ in waiting[: self._world.random.randint(0, len(waiting))]:
                store.commit(persist.writes)

    def persist(self, order: Persist, done: Callable[[Event], None]) -> None:
        """Commit in groups, one at a time."""
        self._waiting.append((order, done))
        self._commit_next()

    def _commit_next(self) -> None:
        if self._busy or not self._waiting:
            return
        self._busy = True
        life = self._life
        group = len(self._waiting)
        took_us = self._world.random.randint(150, 600) + self.slow_us

        def finish() -> None:
            if life == self._life:
                self._finish(group, took_us)

        self._world.after(took_us, finish)

    def _finish(self, group: int, took_us: int) -> None:
        assert self.store is not None
        orders, self._waiting = self._waiting[:group], self._waiting[group:]
        writes: list[StoreWrite] = [write for order, _ in orders for write in order.writes]
        self.store.commit(writes)
        self._busy = False
        order, done = orders[-1]
        done(Persisted(order.token, took_us))
        self._commit_next()

    def read(self, request: StoreRead, done: Callable[[Event], None]) -> None:
        """Answer a read after a while."""
        life = self._life

        def finish() -> None:
            if life == self._life and self.store is not None:
                answer = self.store.read(request)
                if answer is not None:
                    done(answer)

        self._world.after(self._world.random.randint(30, 800), finish)

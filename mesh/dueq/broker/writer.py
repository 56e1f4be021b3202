"""The writing thread: one group commit after the other; while one syncs, the next one gathers."""

from __future__ import annotations

import time
from collections import deque
from threading import Condition, Thread

from dueq.broker.inbox import Inbox
from dueq.core.effects import Persist
from dueq.core.events import Persisted, StoreFailed, StorePressure
from dueq.core.persistence import StoreWrite
from dueq.storage.engine import StoreFailed as EngineFailed
from dueq.storage.space import Pressure
from dueq.storage.store import Store

_GROUP_MAX = 256
_PRESSURE_S = 0.1


class Writer:
    """Takes Persist orders, answers Persisted; after a failure it never writes again."""

    def __init__(self, store: Store, inbox: Inbox) -> None:
        self._store, self._inbox = store, inbox
        self._orders: deque[Persist] = deque()
        self._ready = Condition()
        self._stopping = False
        self._pressure: Pressure | None = None
        self._looked_at = 0.0
        self.commits = 0
        self.seconds = 0.0
        self._thread = Thread(target=self._run, name="dueq-writer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def order(self, persist: Persist) -> None:
        """Queue an order; never blocks."""
        with self._ready:
            self._orders.append(persist)
            self._ready.notify()

    def stop(self, timeout_s: float) -> None:
        """Finish what is queued and end."""
        with self._ready:
            self._stopping = True
            self._ready.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while group := self._next_group():
                self._commit(group)
        except (EngineFailed, OSError) as error:
            self._inbox.put(StoreFailed(str(error)))

    def _next_group(self) -> list[Persist]:
        with self._ready:
            while not self._orders and not self._stopping:
                self._ready.wait(_PRESSURE_S * 5)
                self._look_at_pressure()
            return [self._orders.popleft() for _ in range(min(len(self._orders), _GROUP_MAX))]

    def _commit(self, group: list[Persist]) -> None:
        self._look_at_pressure()
        began = time.perf_counter()
        writes: list[StoreWrite] = [write for order in group for write in order.writes]
        self._store.commit(writes)
        took = time.perf_counter() - began
        self.commits += 1
        self.seconds += took
        self._inbox.put(Persisted(group[-1].token, int(took * 1e6)))

    def _look_at_pressure(self) -> None:
        """Free space is looked at before a commit, not after ENOSPC."""
        now = time.monotonic()
        if now - self._looked_at < _PRESSURE_S:
            return
        self._looked_at = now
        pressure = self._store.pressure()
        if pressure != self._pressure:
            self._pressure = pressure
            self._inbox.put(StorePressure(pressure.inserts_refused, pressure.hand_over))

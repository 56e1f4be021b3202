"""The writing thread: one group commit after the other; while one syncs, the next one gathers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Condition

from dueq.broker.inbox import Inbox
from dueq.broker.worker import Worker
from dueq.core.ports.effects import Persist
from dueq.core.ports.events import Persisted, StorePressure
from dueq.core.ports.persistence import StoreWrite
from dueq.core.turn.metrics import COMMIT_BUCKETS_US, Histogram
from dueq.storage.port import Pressure, Store
from dueq.storage.port import StoreFailed as Refused

_GROUP_MAX = 256
_PRESSURE_S = 0.01
_IDLE_S = 0.5
_BEHIND_S = 0.02
"""Time between two looks at a store that is behind, while there is nothing to write: inserts are refused meanwhile."""
_WIPE_S = 0.005
"""Time between two steps of a wipe while there is nothing else to write, so that it takes half the disk at most."""


class Writer(Worker):
    """Takes Persist orders and answers Persisted; after a failure it answers StoreFailed and never writes
    again.

    Attributes:
        commits: how long the group commits took.
        under_way: the number of the group commit, or of the look at the free space, that is under way; 0: none is. A
            disk that does not answer holds either up.
    """

    def __init__(self, store: Store, inbox: Inbox) -> None:
        super().__init__("writer", inbox)
        self._store = store
        self._orders: deque[Persist] = deque()
        self._ready = Condition()
        self._pressure: Pressure | None = None
        self._looked_at = 0.0
        self.commits = Histogram(COMMIT_BUCKETS_US)
        self.under_way = 0
        self._begun = 0

    def order(self, persist: Persist) -> None:
        """Queue an order; never blocks."""
        with self._ready:
            self._orders.append(persist)
            self._ready.notify()

    def _nudge(self) -> None:
        with self._ready:
            self._ready.notify()

    def _work(self) -> str:
        """Commit group after group; when told to stop, commit the queued orders first."""
        try:
            while True:
                self._look_at_pressure()
                group = self._next_group()
                if group:
                    self._commit(group)
                elif self._stopping:
                    return ""
                elif self._store.wiping():
                    self._store_commit([])
        except (Refused, OSError) as error:
            return str(error)

    def _next_group(self) -> list[Persist]:
        """Return the queued writes, waiting a while for some; the lock is held for no longer than it takes to look."""
        with self._ready:
            if not self._orders and not self._stopping:
                self._ready.wait(self._patience_s())
            return [self._orders.popleft() for _ in range(min(len(self._orders), _GROUP_MAX))]

    def _patience_s(self) -> float:
        if self._store.wiping():
            return _WIPE_S
        behind = self._pressure is not None and self._pressure.inserts_refused == "busy"
        return _BEHIND_S if behind else _IDLE_S

    def _commit(self, group: list[Persist]) -> None:
        began_ns = time.perf_counter_ns()
        writes: list[StoreWrite] = [write for order in group for write in order.writes]
        self._store_commit(writes)
        took_us = (time.perf_counter_ns() - began_ns) // 1000
        self.commits.observe(took_us)
        self._inbox.put(Persisted(group[-1].token, took_us, self._store.wiping()))

    def _store_commit(self, writes: Sequence[StoreWrite]) -> None:
        with self._waiting_for_disk():
            self._store.commit(writes)

    @contextmanager
    def _waiting_for_disk(self) -> Iterator[None]:
        self._begun += 1
        self.under_way = self._begun
        yield
        self.under_way = 0

    def _look_at_pressure(self) -> None:
        """Free space is looked at before commits, not after ENOSPC."""
        now = time.monotonic()
        if now < self._looked_at + _PRESSURE_S and self._pressure is not None:
            return
        self._looked_at = now
        with self._waiting_for_disk():
            pressure = self._store.pressure()
        if pressure != self._pressure:
            self._pressure = pressure
            self._inbox.put(StorePressure(pressure.inserts_refused, pressure.hand_over))

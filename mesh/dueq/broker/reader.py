"""The reading thread: cold reads, so that the loop never waits for the disk."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from threading import Thread

from dueq.broker.inbox import Inbox
from dueq.core.persistence import StoreRead
from dueq.storage.store import Store

_EXPIRE_S = 5.0


class Reader:
    """Answers reads in the order asked. The core bounds how many are under way."""

    def __init__(self, store: Store, inbox: Inbox) -> None:
        self._store, self._inbox = store, inbox
        self._requests: SimpleQueue[StoreRead | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="dueq-reader", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def order(self, request: StoreRead) -> None:
        """Queue a read; never blocks."""
        self._requests.put(request)

    def stop(self, timeout_s: float) -> None:
        """End after the read under way."""
        self._requests.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            try:
                request = self._requests.get(timeout=_EXPIRE_S)
            except Empty:
                self._store.expire_snapshots(time.monotonic_ns() // 1000)
                continue
            if request is None:
                return
            answer = self._store.read(request)
            if answer is not None:
                self._inbox.put(answer)

"""The reading thread: cold reads, so that the loop never waits for the disk."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue

from dueq.broker.inbox import Inbox
from dueq.broker.worker import Worker
from dueq.core.ports.persistence import StoreRead
from dueq.storage.port import Store, StoreFailed

_EXPIRE_S = 5.0


class Reader(Worker):
    """Answers reads in the order asked. The core bounds how many are under way.

    A read that fails ends the thread, and with it the broker: a disk that cannot be read can promise nothing.
    """

    def __init__(self, store: Store, inbox: Inbox) -> None:
        super().__init__("reader", inbox)
        self._store = store
        self._requests: SimpleQueue[StoreRead | None] = SimpleQueue()

    def order(self, request: StoreRead) -> None:
        """Queue a read; never blocks."""
        self._requests.put(request)

    def _nudge(self) -> None:
        self._requests.put(None)

    def _work(self) -> str:
        """Read until told to stop; reads that are still queued then are dropped."""
        expire_at = 0.0
        while not self._stopping:
            now = time.monotonic()
            if now >= expire_at:
                expire_at = now + _EXPIRE_S
                self._store.expire_snapshots(int(now * 1e6))
            try:
                request = self._requests.get(timeout=_EXPIRE_S)
            except Empty:
                continue
            if request is None:
                continue
            try:
                answer = self._store.read(request)
            except StoreFailed as error:
                return str(error)
            if answer is not None:
                self._inbox.put(answer)
        return ""

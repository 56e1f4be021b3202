"""A thread of the broker that must not end by itself."""

from __future__ import annotations

from threading import Thread

from dueq.broker.inbox import Inbox
from dueq.core.ports.events import StoreFailed


class Worker:
    """Runs `_work` in a thread of its own. If that ends without having been told to, the broker must end too.

    The error of a failed store is put in the reason; any other error is a bug, and goes to
    `threading.excepthook`.
    """

    def __init__(self, name: str, inbox: Inbox) -> None:
        self._inbox = inbox
        self._stopping = False
        self._failure = ""
        self._thread = Thread(target=self._run, name=f"dueq-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End in order; returns whether the thread has ended in time."""
        self._stopping = True
        self._nudge()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        failure = f"the thread {self._thread.name} has ended by itself"
        try:
            failure = self._work()
        finally:
            if failure:
                self._inbox.put(StoreFailed(failure))

    def _work(self) -> str:
        """Work until told to stop; returns why it had to end, "" if it was told to."""
        raise NotImplementedError

    def _nudge(self) -> None:
        """Have `_work` look at `_stopping`."""
        raise NotImplementedError

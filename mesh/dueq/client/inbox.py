"""One consumer's messages: the I/O thread fills the inbox, and the user empties it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from dueq.client.core.ports.delivery import Delivery
from dueq.errors import DueqError


class Inbox:
    """Messages not handed out yet, and leases lost.

    Taking a delivery sets its `handed` under the lock: so it is either handed out or given back, never both.

    Args:
        wake: called in the I/O thread, without the lock, when something has come.

    Attributes:
        lost: messages in the user's hands whose lost leases were not reported yet.
        failure: why no more messages will come.
        closed: the user takes no more messages.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._buffer: deque[Delivery] = deque()
        self.lost: deque[Delivery] = deque()
        self.failure: DueqError | None = None
        self.closed = False

    def __len__(self) -> int:
        return len(self._buffer)

    # -------------------------------------------------------------- the I/O thread

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Messages have come. A closed inbox keeps none: the session machine gives back what was not handed out."""
        with self._lock:
            if not self.closed:
                self._buffer.extend(deliveries)
        self._wake()

    def reclaim(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Take back those that are not handed out; the caller releases them."""
        with self._lock:
            unhandled = [delivery for delivery in deliveries if not delivery.handed]
            self._take_out(unhandled)
        return unhandled

    def lose(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Leases are over: return the messages not handed out; note the others for the user."""
        with self._lock:
            unhandled = [delivery for delivery in deliveries if not delivery.handed]
            self.lost.extend(delivery for delivery in deliveries if delivery.handed)
            self._take_out(unhandled)
        self._wake()
        return unhandled

    def fail(self, error: DueqError) -> None:
        """Nothing more will come."""
        self.failure = error
        self._wake()

    def _take_out(self, unhandled: Sequence[Delivery]) -> None:
        if unhandled:
            for delivery in unhandled:
                delivery.handed = True
            self._buffer = deque(delivery for delivery in self._buffer if not delivery.handed)

    # -------------------------------------------------------------- the user

    def take(self, count: int, mono_us: int) -> list[Delivery]:
        """Hand out up to `count` messages; none whose lease is over."""
        taken: list[Delivery] = []
        if not self._buffer:
            return taken
        with self._lock:
            buffer = self._buffer
            while buffer and len(taken) < count:
                delivery = buffer.popleft()
                if not delivery.lost and delivery.deadline_us > mono_us:
                    delivery.handed = True
                    taken.append(delivery)
        return taken

    def take_lost(self) -> list[Delivery]:
        """Leases lost since the last time, of messages that the user has."""
        if not self.lost:
            return []
        with self._lock:
            lost = list(self.lost)
            self.lost.clear()
        return lost

    def close(self) -> list[Delivery]:
        """Take no more; return what was not handed out."""
        with self._lock:
            self.closed = True
            rest = [delivery for delivery in self._buffer if not delivery.lost]
            self._buffer = deque()
            for delivery in rest:
                delivery.handed = True
        self._wake()
        return rest

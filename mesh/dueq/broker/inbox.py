"""Brings other threads' events into the loop: a queue, and a descriptor that wakes it."""

from __future__ import annotations

import os
from collections import deque

from dueq.core.ports.events import Event


class Inbox:
    """Many threads put, the loop takes. Putting never blocks."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closed = False

    def fileno(self) -> int:
        """The descriptor that becomes readable when something is put."""
        return self._wake

    def put(self, event: Event) -> None:
        """Add an event and wake the loop."""
        self._events.append(event)
        self.wake()

    def wake(self) -> None:
        """Have the loop take a turn; nothing happens once the inbox is closed."""
        if not self._closed:
            os.eventfd_write(self._wake, 1)

    def take(self) -> list[Event]:
        """Return what was put since the last call, oldest first."""
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return []
        return [self._events.popleft() for _ in range(len(self._events))]

    def close(self) -> None:
        """Close the descriptor; later events are lost."""
        self._closed = True
        os.close(self._wake)

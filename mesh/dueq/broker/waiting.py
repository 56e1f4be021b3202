"""Waiting for many descriptors, to the microsecond.

`poll` and `epoll` count whole milliseconds, and a due instant must not be missed by one. `select` counts microseconds
but knows no descriptor above 1023, and a broker with a thousand clients has higher ones. So `select` waits for a
single epoll descriptor, made before there are many others. It is readable when any descriptor in it is.
"""

from __future__ import annotations

import select
from typing import Final

_NONE: Final[frozenset[int]] = frozenset()


class Waiter:
    """Waits until one of its descriptors is readable; belongs to the loop's thread."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ready: frozenset[int] | None = None

    def add(self, descriptor: int) -> None:
        """Wake when this descriptor is readable."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, descriptor: int) -> None:
        """Forget a descriptor; to be called before it is closed."""
        self._epoll.unregister(descriptor)

    def wait(self, seconds: float) -> None:
        """Return when a descriptor is readable, or after this many seconds."""
        if select.select([self._epoll], [], [], seconds)[0]:
            self._ready = frozenset([descriptor for descriptor, _ in self._epoll.poll(0)])
        else:
            self._ready = _NONE

    def skip(self) -> None:
        """There is no wait in this turn: any descriptor may be readable."""
        self._ready = None

    def may_be_ready(self, descriptor: int) -> bool:
        """Return whether a descriptor was readable after the last wait, as far as is known."""
        return self._ready is None or descriptor in self._ready

    def close(self) -> None:
        """Close the epoll descriptor, not those in it."""
        self._epoll.close()

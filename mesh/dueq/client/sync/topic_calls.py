# Made of aio/topic_calls.py by scripts/generate-faces: write there.
"""The calls of one producer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dueq.client.calls import Call, Steps
from dueq.client.sync.connection import Connection
from dueq.client.sync.waiting import Pending
from dueq.errors import ClientClosed

T = TypeVar("T")


class TopicCalls:
    """Sends the calls of a producer until it is closed.

    Attributes:
        topic: its name.
        closed: refuse further calls.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        self.topic = topic
        self.closed = False
        self._connection = connection

    def run(self, call: Call[T], timeout: float | None) -> T:
        """Send a call and wait for its answer."""
        self._check_open()
        return self._connection.run(call, timeout)

    def follow(self, steps: Steps[T], timeout: float | None) -> T:
        """Run calls one after the other."""
        self._check_open()
        return self._connection.follow(steps, timeout)

    def send(self, call: Call[Any], timeout: float | None) -> Pending:
        """Send a call; its answer is waited for later."""
        self._check_open()
        return self._connection.send(self._connection.live(), call, timeout)

    def clock(self, relative: bool, timeout: float | None) -> Callable[[], int]:
        """Return mesh time, Unix µs; measured first if it never was and `relative` (a time counts from now)."""
        self._check_open()
        return self._connection.clock(relative, timeout)

    def _check_open(self) -> None:
        if self.closed:
            raise ClientClosed(f"the producer of {self.topic!r} is closed")

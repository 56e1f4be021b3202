"""Calls that wait for an answer: each gets exactly one, at its deadline at the latest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dueq.client.core.links.context import Context
from dueq.client.core.ports.effects import Completed, Failed
from dueq.client.core.ports.parts import PartsCall
from dueq.client.core.ports.timers import Timer
from dueq.errors import ClientClosed, DueqError


class Calls:
    """The open calls by number."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._open: dict[int, Timer] = {}

    def begin(self, call: int, deadline_us: int, expired: Callable[[], None]) -> None:
        """Open a call; `expired` must complete or fail it."""
        self._open[call] = self._context.timers.at(deadline_us, expired)

    def is_open(self, call: int) -> bool:
        """Whether somebody still waits for it."""
        return call in self._open

    def complete(self, call: int, value: Any = None) -> None:
        """Answer; nothing if it has been answered."""
        timer = self._open.pop(call, None)
        if timer is not None:
            timer.cancel()
            self._context.emit(Completed(call, value))

    def fail(self, call: int, error: DueqError, repeat: PartsCall | None = None) -> None:
        """Answer with an error; nothing if it has been answered."""
        timer = self._open.pop(call, None)
        if timer is not None:
            timer.cancel()
            self._context.emit(Failed(call, error, repeat))

    def forget(self, call: int) -> None:
        """Nobody waits any more: who keeps the call need not keep it."""
        self.fail(call, ClientClosed("nobody waits for this call any more"))

    def close(self) -> None:
        """Fail all open calls."""
        for call in list(self._open):
            self.fail(call, ClientClosed("the client was closed while the call was waiting"))

"""SIGINT and SIGTERM: the process ends in order, whatever it is doing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """While this is entered, a signal calls what `call` was given; before that, it raises SystemExit(0).

    Only in the main thread; in another one it does nothing.
    """

    def __init__(self) -> None:
        self._stop: Callable[[], None] | None = None
        self._told_early = False
        self._old: dict[int, Any] = {}

    def call(self, stop: Callable[[], None]) -> None:
        """Name what ends the process in order from now on; called at once where a signal has come before.

        The interpreter drops what is raised in a destructor or a callback: SystemExit, too.
        """
        self._stop = stop
        if self._told_early:
            stop()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._old = {number: signal.signal(number, self._told) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _told(self, number: int, frame: FrameType | None) -> None:
        if self._stop is None:
            self._told_early = True
            raise SystemExit(0)
        self._stop()

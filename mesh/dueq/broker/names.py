"""Looks the names of peers up, each in a thread of its own (see `host_names`)."""

from __future__ import annotations

from threading import Thread
from typing import Final

from dueq.host_names import has_name, looked_up

_AGAIN_US: Final = 1_000_000
"""Between two attempts to look a name up."""


class Lookup:
    """The address of one endpoint; belongs to the loop's thread.

    Attributes:
        endpoint: as the peer tells it.
        address: the same with a number in place of a name; "" as long as that is not known.
    """

    def __init__(self, endpoint: str, now_us: int) -> None:
        """Begin to look the name up, if it is one."""
        self.endpoint = endpoint
        self._thread: Thread | None = None
        self._fault = ""
        self._again_us = 0
        self.address = "" if has_name(endpoint) else endpoint
        if not self.address:
            self.go_on(now_us)

    @property
    def under_way(self) -> bool:
        """Whether somebody is being asked."""
        return self._thread is not None and self._thread.is_alive()

    def go_on(self, now_us: int) -> str:
        """Look the name up again, some time after that has failed; returns why it has, "" if that was told before."""
        if self.under_way:
            return ""
        fault, self._fault = self._fault, ""
        if now_us >= self._again_us:
            self._again_us = now_us + _AGAIN_US
            thread = Thread(target=self._look_up, name="dueq-lookup", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the machine has no thread left for this process
                self._fault = str(error)
            else:
                self._thread = thread
        return fault

    def _look_up(self) -> None:
        try:
            self.address = looked_up(self.endpoint)
        except OSError as error:
            self._fault = str(error)

"""Names of peers are looked up here, each in a thread of its own.

libzmq would look them up in the thread that serves all connections. Where a name server is silent that takes ten
seconds, with every attempt to connect, and nobody else is served meanwhile.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from threading import Thread
from typing import Final

_TCP: Final = "tcp://"
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
        self._host, _, self._port = endpoint.removeprefix(_TCP).rpartition(":")
        self._thread: Thread | None = None
        self._fault = ""
        self._again_us = 0
        self.address = ""
        if not endpoint.startswith(_TCP) or not self._host or _is_number(self._host):
            self.address = endpoint
        else:
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
            # IPv4 only, as libzmq does unless it is told otherwise.
            found = socket.getaddrinfo(self._host, None, socket.AF_INET, socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            self._fault = str(error)
        else:
            self.address = f"{_TCP}{found[0][4][0]}:{self._port}"


def _is_number(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True

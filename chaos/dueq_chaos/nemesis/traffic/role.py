"""The orders that a process of the traffic takes, and its reports about itself."""

from __future__ import annotations

from typing import Any, Protocol


class Role(Protocol):
    """A producer, a consumer, or both."""

    def run(self) -> None:
        """Go on until `stop`."""

    def stop(self) -> None:
        """Begin nothing new, find out what is open, end. For threads beside that of `run`."""

    def calm(self) -> None:
        """Begin nothing new, but go on to receive, and simply acknowledge. For other threads, too."""

    def counters(self) -> dict[str, Any]:
        """Return what to tell: `scheduled`, `delivered`, `late_ms` (of late), `busy` (not calm yet); any of them."""

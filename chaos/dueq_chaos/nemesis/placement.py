"""The leader of each partition, watched all the time by a thread of its own, past the wires that may be cut."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dueq import Client
from dueq.errors import DueqError

_EVERY_S = 0.4
_PATIENCE_S = 1.5


class Placement:
    """The last that was seen of every partition.

    Args:
        endpoints: of the brokers, one each.
    """

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._endpoints = list(endpoints)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen: dict[int, dict[str, Any]] = {}

    def start(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._watch, name="placement")
        self._thread.start()

    def stop(self) -> None:
        """Look no more; may be called again."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def leader(self) -> str:
        """The broker that leads most partitions, as last seen; empty when nothing is known."""
        leaders = Counter(p["leader"] for p in self._seen.values() if p["leader"])
        return max(sorted(leaders), key=lambda name: leaders[name]) if leaders else ""

    def serving(self) -> tuple[int, int]:
        """How many partitions are served, of how many."""
        return sum(bool(p["serving"]) for p in self._seen.values()), len(self._seen)

    def whole(self) -> bool:
        """Whether every partition is served and all its replicas are in sync."""
        return bool(self._seen) and all(
            p["serving"] and len(p["isr"]) == len(p["replicas"]) for p in self._seen.values()
        )

    def waiting(self) -> int | None:
        """Messages that are not finished; None where some partition has not been heard."""
        counts = [
            (p["scheduled"], p["ready"], p["leased"]) if p["serving"] else (None,)
            for p in self._seen.values()
        ]
        if not counts or any(number is None for row in counts for number in row):
            return None
        return sum(number or 0 for row in counts for number in row)

    def text(self) -> str:
        """Return the partitions that are not as they should be, for people."""
        return ", ".join(
            f"partition {uid}: " + (f"in sync {', '.join(p['isr'])}" if p["serving"] else "not served")
            for uid, p in sorted(self._seen.items())
            if not p["serving"] or len(p["isr"]) < len(p["replicas"])
        )

    def _watch(self) -> None:
        with Client(self._endpoints, timeout=_PATIENCE_S) as client:
            while not self._stop.wait(_EVERY_S):
                try:
                    seen = {
                        partition.uid: {
                            "leader": partition.leader, "serving": partition.serving,
                            "replicas": partition.replicas, "isr": partition.isr,
                            "scheduled": partition.scheduled, "ready": partition.ready,
                            "leased": partition.leased,
                        }
                        for topic in client.topics()
                        for partition in client.describe(topic.name).placement
                    }  # fmt: skip
                except DueqError:
                    self._seen = {uid: {**old, "serving": False} for uid, old in self._seen.items()}
                    continue
                self._seen = seen

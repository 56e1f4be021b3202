"""Recurrences of every second, and who receives their messages.

Lines of its notes, one JSON object each; instants are Unix ms of this machine's clock:

    {"made": name, "from": the first tick}            it exists
    {"ended": name, "until": every tick before this instant is to come; it is deleted later}
    {"tick": name, "due": ms, "id": message id, "at": when it came}
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path
from typing import IO, Any, Final

from dueq import Client
from dueq.errors import DueqError, RecurrenceExists, RecurrenceNotFound
from dueq_chaos.nemesis.traffic.insisting import CALL_S, repeat
from dueq_chaos.nemesis.traffic.specification import Specification

RECURRENCES: Final = 12
_AHEAD_MS: Final = 3_000
_RECEIVE_S: Final = 0.3
_SETTLE_S: Final = 3.0
_PATIENCE_S: Final = 60.0


class Ticking:
    """Makes recurrences, receives what they make, ends them.

    Args:
        specification: `history` is where the notes go.
    """

    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._stop = threading.Event()
        self._calm = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._delivered = 0
        self._latest: dict[str, int] = {}

    def run(self) -> None:
        """Go on until `stop`."""
        with (
            Path(self._specification.history).open("a", encoding="utf-8") as notes,
            Client(self._specification.endpoints) as client,
        ):
            keeper = threading.Thread(target=self._keep, args=(client, notes))
            keeper.start()
            while not self._stop.is_set():
                with contextlib.suppress(DueqError):
                    self._consume(client, notes)
            keeper.join()

    def stop(self) -> None:
        """End the recurrences, and receive no more."""
        self._calm.set()
        self._stop.set()

    def calm(self) -> None:
        """End the recurrences."""
        self._calm.set()

    def counters(self) -> dict[str, Any]:
        """Return what came, and whether recurrences still run."""
        return {"delivered": self._delivered, "late_ms": [], "busy": not self._ended.is_set()}

    def _keep(self, client: Client, notes: IO[str]) -> None:
        topic, prefix = self._specification.topic, self._specification.name
        names = [f"{prefix}-{number}" for number in range(RECURRENCES)]
        for name in names:
            start = (_now_ms() + _AHEAD_MS) // 1000 * 1000
            repeat(lambda name=name, start=start: _create(client, topic, name, start))  # type: ignore[misc]
            self._note(notes, {"made": name, "from": start})
        self._calm.wait()
        until = _now_ms()
        patience = time.monotonic() + _PATIENCE_S
        while time.monotonic() < patience and not all(self._came(name, until) for name in names):
            time.sleep(
                _RECEIVE_S
            )  # deleted sooner, a recurrence would not make up for what a fault has delayed
        for name in names:
            self._note(notes, {"ended": name, "until": until})
            repeat(
                lambda name=name: client.delete_recurrence(topic, name, timeout=CALL_S),  # type: ignore[misc]
                (RecurrenceNotFound,),
            )
        self._ended.set()

    def _came(self, name: str, until: int) -> bool:
        return self._latest.get(name, 0) + 1000 > until

    def _consume(self, client: Client, notes: IO[str]) -> None:
        with client.consumer(self._specification.topic, lease=self._specification.lease_s) as consumer:
            while not self._stop.is_set():
                messages = consumer.receive(100, timeout=_RECEIVE_S)
                now = _now_ms()
                for message in messages:
                    name = message.payload.decode()
                    self._note(notes, {"tick": name, "due": message.due, "id": message.id, "at": now})
                    self._latest[name] = max(self._latest.get(name, 0), message.due)
                self._delivered += len(messages)
                with contextlib.suppress(DueqError):
                    consumer.ack(messages, timeout=_SETTLE_S)

    def _note(self, notes: IO[str], note: dict[str, Any]) -> None:
        with self._lock:
            notes.write(json.dumps(note) + "\n")
            notes.flush()


def _create(client: Client, topic: str, name: str, start: int) -> None:
    with contextlib.suppress(RecurrenceExists):  # an earlier try has come through
        client.create_recurrence(
            topic, name, every=1.0, start=start, missed="all", payload=name.encode(), timeout=CALL_S
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""Recurrences of every second, and the consumer of their messages.

Lines of its notes, one JSON object each; instants are Unix ms of this machine's clock:

    {"making": name, "from": the first tick}          before it is created
    {"made": name, "since": ms}                       it exists: every tick from then on is to come
    {"ended": name, "until": every tick before this instant is to come; it is deleted later}
    {"tick": name, "due": ms, "id": message id, "at": when it came}
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any, Final

from dueq import Client
from dueq.errors import DueqError, RecurrenceExists, RecurrenceNotFound
from dueq_chaos.nemesis.traffic.insisting import CALL_S, repeat
from dueq_chaos.nemesis.traffic.notes import Notes
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
        self._delivered = 0
        self._latest: dict[str, int] = {}

    def run(self) -> None:
        """Go on until `stop`."""
        with (
            Path(self._specification.history).open("a", encoding="utf-8") as file,
            Client(self._specification.endpoints) as client,
        ):
            notes = Notes(file)
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

    def _keep(self, client: Client, notes: Notes) -> None:
        topic, prefix = self._specification.topic, self._specification.name
        names = [f"{prefix}-{number}" for number in range(RECURRENCES)]
        for name in names:
            start = (_now_ms() + _AHEAD_MS) // 1000 * 1000
            notes.write({"making": name, "from": start})
            if repeat(lambda name=name, start=start: _create(client, topic, name, start)):  # type: ignore[misc]
                # No tick is made up for that was before the recurrence was there.
                notes.write({"made": name, "since": max(start, _now_ms())})
        self._calm.wait()
        until = _now_ms()
        patience = time.monotonic() + _PATIENCE_S
        while time.monotonic() < patience and not all(self._came(name, until) for name in names):
            # Deleted sooner, a recurrence would not make up for what a fault has delayed.
            time.sleep(_RECEIVE_S)
        for name in names:
            notes.write({"ended": name, "until": until})
            repeat(
                lambda name=name: client.delete_recurrence(topic, name, timeout=CALL_S),  # type: ignore[misc]
                (RecurrenceNotFound,),
            )
        self._ended.set()

    def _came(self, name: str, until: int) -> bool:
        return self._latest.get(name, 0) + 1000 > until

    def _consume(self, client: Client, notes: Notes) -> None:
        with client.consumer(self._specification.topic, lease=self._specification.lease_s) as consumer:
            while not self._stop.is_set():
                messages = consumer.receive(100, timeout=_RECEIVE_S)
                now = _now_ms()
                for message in messages:
                    name = message.payload.decode()
                    notes.write({"tick": name, "due": message.due, "id": message.id, "at": now})
                    self._latest[name] = max(self._latest.get(name, 0), message.due)
                self._delivered += len(messages)
                with contextlib.suppress(DueqError):
                    consumer.ack(messages, timeout=_SETTLE_S)


def _create(client: Client, topic: str, name: str, start: int) -> bool:
    with contextlib.suppress(RecurrenceExists):  # an earlier try has come through
        client.create_recurrence(
            topic, name, every=1.0, start=start, missed="all", payload=name.encode(), timeout=CALL_S
        )
    return True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

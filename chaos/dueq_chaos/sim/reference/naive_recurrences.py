"""The rules of recurrences once more, row by row, for the naive reference (see `naive`)."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Final

from dueq_codecs.records import Outcome, Record

DEFAULTS: Final[dict[str, Any]] = {
    "cron": "", "every_ms": 0, "at_ms": [], "zone": "UTC", "start_ms": 0, "end_ms": 0, "jitter_ms": 0, "missed": 1,
    "overlap": "allow",
    "headers": {},
    "rank": 0,
    "group": "",
    "body": "",
}  # fmt: skip


@dataclass(slots=True)
class NaiveRecurrence:
    """One recurrence.

    Attributes:
        ticks: tick -> key of its message, of all ticks that have one.
        coming: those of them that may be taken back, or that others are before which are still to have messages; with
            the instant at which the message begins to wait.
    """

    number: int
    terms: dict[str, Any]
    payload: bytes
    anchor: int
    next: int
    paused: bool = False
    messages: int = 0
    skipped: int = 0
    ticks: dict[int, int] = field(default_factory=dict)
    coming: dict[int, int] = field(default_factory=dict)

    @property
    def past(self) -> int:
        """The last tick that has a message which cannot be taken back; 0: none."""
        return max(self.ticks.keys() - self.coming.keys(), default=0)


class NaiveRecurrences:
    """The recurrences of one partition.

    Attributes:
        by_name: all of them.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, NaiveRecurrence] = {}

    def of(self, number: int) -> NaiveRecurrence | None:
        """Return the recurrence with this number."""
        return next((each for each in self.by_name.values() if each.number == number), None)

    def act(self, record: Record, withdrawn: set[int]) -> Outcome:
        """Do what a RECURRENCE asks for; `withdrawn`: the keys of the messages that it has taken back."""
        document = json.loads(record.document)
        action = document.pop("action")
        known = self.by_name.get(record.name)
        payload = document.pop("payload", "" if record.shared else None)
        if payload is not None:
            document["body"] = record.shared.hex()
        if action == "create":
            if known is not None:
                return Outcome.EXISTS
            self.by_name[record.name] = NaiveRecurrence(
                record.sequence, DEFAULTS | document, base64.b64decode(payload or ""), int(record.tick[0]),
                int(record.following[0]),
            )  # fmt: skip
            return Outcome.DONE
        if known is None or action == "trigger":
            return Outcome.NOT_FOUND
        for tick in [tick for tick in known.coming if known.ticks[tick] in withdrawn]:
            del known.coming[tick], known.ticks[tick]
            known.messages -= 1
        if action == "delete":
            del self.by_name[record.name]
            return Outcome.DONE
        if action == "update":
            if any(document.get(name) for name in ("cron", "every_ms", "at_ms")):
                known.terms |= {name: DEFAULTS[name] for name in ("cron", "every_ms", "at_ms", "zone")}
            known.terms |= document
            known.payload = base64.b64decode(payload) if payload is not None else known.payload
            known.anchor = int(record.tick[0])
        else:
            known.paused = action == "pause"
        known.next = int(record.following[0])
        self._come(known, record.stamp)
        return Outcome.DONE

    @staticmethod
    def _come(known: NaiveRecurrence, stamp: int) -> None:
        open_ticks = {tick for tick, first in known.coming.items() if first > stamp}
        if known.next:
            open_ticks.add(known.next)
        for tick in list(known.coming):
            if all(tick < each for each in open_ticks):
                del known.coming[tick]

    def fire(self, record: Record, at: int) -> tuple[Outcome, bool]:
        """Move a recurrence on; returns the outcome, and whether the row's message is new."""
        tick, following, due = (int(column[at]) for column in (record.tick, record.following, record.due))
        known = self.of(int(record.recurrence[at]))
        if known is None or (
            tick and (known.next != tick or (due and (tick <= known.past or tick in known.coming)))
        ):
            return Outcome.NOT_FOUND, False
        if tick:
            known.next = following
        if not due:
            known.skipped += 1
            return Outcome.DONE, False
        known.messages += 1
        if tick:
            self._come(known, record.stamp)
            known.ticks[tick] = record.sequence << 16 | at
            known.coming[tick] = max(due, record.stamp)
        return Outcome.DONE, True

"""The whole story of one message: who, what, when."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dueq_chaos.history.columns import History
from dueq_chaos.history.judging import Change, Delivery, Life, Settling
from dueq_chaos.history.operations import FOREVER, Kind, Told

_NOTES_MAX = 12
_AROUND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a story.

    Attributes:
        at_ms: since the first line of the history.
        who: the client; empty for notes.
        what: in words.
        where: file and line of the invocation; empty for notes.
    """

    at_ms: float
    who: str
    what: str
    where: str

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


class Stories:
    """Tells stories of a history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._start = int(history.instants[0, 0]) if len(history.instants) else 0
        self._start_us = int(history.clock.wall(np.array([self._start]))[0])

    def tell(self, life: Life) -> list[Event]:
        """Everything that happened to a message, and the notes of that time, in order."""
        if not life.known:
            inserts = life.inserts[:3]
        else:
            inserts = life.inserts
        changes = [*inserts, *life.moves, *life.cancels]
        told: list[tuple[int, Event]] = [(change.invoked, self._change(life, change)) for change in changes]
        told += [(delivery.received, self._delivery(delivery)) for delivery in life.deliveries]
        told += [(settling.invoked, self._settling(settling)) for settling in life.settlings]
        if told:
            first, last = min(at for at, _ in told), max(at for at, _ in told)
            near = [n for n in self._history.notes if first - _AROUND_US <= n[0] <= last + _AROUND_US]
            told += [(at, Event(self._ms(at), "", text, "")) for at, text in near[:_NOTES_MAX]]
            if len(near) > _NOTES_MAX:
                more = f"… {len(near) - _NOTES_MAX} more notes"
                told.append((last + _AROUND_US, Event(self._ms(last), "", more, "")))
        return [event for _, event in sorted(told, key=lambda item: item[0])]

    def _change(self, life: Life, change: Change) -> Event:
        words = change.kind.name.lower()
        if change.kind is not Kind.CANCEL:
            words += f" due {self._due(change.due_us)}"
        if change.kind is Kind.SCHEDULE and not life.known:
            words += " (perhaps this one)"
        return self._event(change.invoked, change.client, words, change.operation, change.told)

    def _settling(self, settling: Settling) -> Event:
        words = f"{settling.kind.name.lower()} token {settling.token}"
        if settling.kind in (Kind.NACK, Kind.EXTEND):
            words += f" by {settling.amount_us / 1000:g} ms"
        if settling.kind is Kind.LOST:
            words = f"is told that the lease of token {settling.token} is lost"
            return self._event(settling.invoked, settling.client, words, settling.operation, None)
        return self._event(settling.invoked, settling.client, words, settling.operation, settling.told)

    def _delivery(self, delivery: Delivery) -> Event:
        released_ms = (delivery.released_us - self._start_us) / 1000
        lease_ms = (delivery.lease_until - delivery.received) / 1000
        words = (
            f"receives it: token {delivery.token}, attempt {delivery.attempt}, released {released_ms:+.3f} ms, "
            f"due {self._due(delivery.due_us)}, lease {lease_ms:g} ms, {delivery.size} bytes"
        )
        return self._event(delivery.received, delivery.client, words, delivery.operation, None)

    def _event(self, at: int, client: int, words: str, operation: int, told: Told | None) -> Event:
        operations = self._history.operations
        if told is not None:
            completed = int(operations.completed[operation])
            words += f" → {told.name.lower()}"
            words += " (no answer)" if completed == FOREVER else f" after {(completed - at) / 1000:.3f} ms"
        file = self._history.files[int(operations.file[operation])]
        where = f"{file}:{int(operations.line[operation])}"
        return Event(self._ms(at), self._history.clients[client], words, where)

    def _due(self, due_us: int) -> str:
        return f"{(due_us - self._start_us) / 1000:+.0f} ms"

    def _ms(self, mono: int) -> float:
        return (mono - self._start) / 1000

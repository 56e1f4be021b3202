"""The passes of a partition in the reference: the state of each, and the messages that it may still change."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dueq.core.ports.entry import State
from dueq.core.state.pass_table import PassState
from dueq.limits import PASS_MEMORY_MS, PASS_RETRIED_MS, PASSES_KEPT
from dueq_chaos.sim.reference.naive_entry import NaiveEntry
from dueq_codecs.records import Outcome, Record


@dataclass(slots=True)
class NaivePass:
    """One pass, as this partition knows it."""

    sequence: int
    work: dict[str, Any]
    total: int
    done: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    state: PassState = PassState.RUNNING
    ended: int = 0

    def may_change(self, entry: NaiveEntry) -> bool:
        """Whether it runs, and the message is in its state, and was not changed since it was asked for."""
        wanted = _state_of(self.work)
        untouched = max(entry.sequence, entry.version) < self.sequence
        return self.state == PassState.RUNNING and entry.state == wanted and untouched

    def count(self, outcome: Outcome) -> None:
        """Count the outcome for a message."""
        self.done += outcome == Outcome.DONE
        if outcome == Outcome.TAKEN:
            self.skipped = {**self.skipped, "taken": self.skipped.get("taken", 0) + 1}


class NaivePasses:
    """The passes of one partition.

    Attributes:
        by_name: what is known of each.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, NaivePass] = {}

    def act(self, record: Record, entries: Iterable[NaiveEntry], age: int) -> Outcome:
        """Apply a PASS record."""
        document, known = json.loads(record.document), self.by_name.get(record.name)
        if "filter" in document:
            if known is None:
                wanted = _state_of(document)
                total = sum(entry.state == wanted for entry in entries)
                self.by_name[record.name] = NaivePass(record.sequence, document, total)
            elif known.work != document:
                return Outcome.EXISTS
        elif known is None:
            return Outcome.NOT_FOUND
        elif known.state == PassState.RUNNING:
            known.state = PassState.ENDED if document["do"] == "end" else PassState.STOPPED
            known.ended = age
            taken = {name: count for name, count in known.skipped.items() if name == "taken"}
            known.skipped = document.get("skipped", {}) | taken
        return Outcome.DONE

    def forget(self, age: int) -> None:
        """Forget those that ended long ago; of very many, the oldest after a minute."""
        ended = [name for name, known in self.by_name.items() if known.state != PassState.RUNNING]
        for place, name in enumerate(ended):
            is_one_of_many = len(ended) - place > PASSES_KEPT
            if age - self.by_name[name].ended > (PASS_RETRIED_MS if is_one_of_many else PASS_MEMORY_MS):
                del self.by_name[name]


def _state_of(work: dict[str, Any]) -> State:
    return State.DEAD if work["filter"]["state"] == "dead" else State.WAITING

"""The passes of one partition: work on all messages that match a filter, done by the leader batch by batch.

    PASS cancel, shift, … ──► RUNNING ──CANCEL, MOVE, CHANGE … (by the leader, with its name)──► PASS end ──► ENDED
                                 └─────────────────────── PASS stop ───────────────────────────► STOPPED

A pass is about the messages that were inserted before its first record and have not been changed since. Apply checks
that again for each row. So no message is shifted or cancelled that somebody has changed meanwhile, whoever leads. A
message that the pass itself has changed has the version of its record, so none is shifted twice. A message that matched
and was left as it is was skipped: the leader counts these, by reason, when the pass ends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import Entries, State, keys_of
from dueq.core.ports.tables import TableRow
from dueq.core.state.applied import Applied
from dueq.core.state.matching import FilterRefused, filter_of, matching
from dueq.core.state.side_table import Messages
from dueq.errors import UnknownVersion
from dueq.limits import DELAY_MS_MAX, DUE_MS_MAX, PASS_MEMORY_MS, PASS_RETRIED_MS, PASSES_KEPT, RANK_MAX
from dueq_codecs.documents import decode_document
from dueq_codecs.records import U8, U64, Outcome, Record

_ROW_VERSION: Final = 1
BEGINNING: Final[dict[str, tuple[str, ...]]] = {
    "purge": (),
    "cancel": (),
    "shift": ("by_ms",),
    "move": ("to_ms", "spread_ms"),
    "change": ("rank",),
    "redrive": ("spread_ms",),
}
"""Each action on messages, and the further fields of its document."""
_BOUNDS: Final = {
    "by_ms": (-DUE_MS_MAX, DUE_MS_MAX), "to_ms": (0, DUE_MS_MAX), "spread_ms": (0, DELAY_MS_MAX), "rank": (0, RANK_MAX),
}  # fmt: skip


class PassState(IntEnum):
    """How far a pass is."""

    RUNNING = 0
    ENDED = 1
    STOPPED = 2


@dataclass(slots=True)
class Pass:
    """One pass.

    Attributes:
        name: that its owner has chosen.
        sequence: of its first record: it is about messages that were inserted before.
        work: the action and the filter, as its owner wrote them.
        total: messages that waited (or were dead, if it is about those) then.
        done: messages that it has finished or changed.
        skipped: messages that matched and were left as they are, by reason, when it ended.
        state: how far it is.
        ended_ms: age of the partition when it ended.
    """

    name: str
    sequence: int
    work: dict[str, Any]
    total: int
    done: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    state: PassState = PassState.RUNNING
    ended_ms: int = 0

    @property
    def left(self) -> int:
        """At most this many messages are still to be looked at."""
        return max(self.total - self.done, 0) if self.state == PassState.RUNNING else 0

    def fields(self) -> dict[str, Any]:
        """Return the pass as plain JSON values."""
        return {
            "sequence": self.sequence, "work": self.work, "total": self.total, "done": self.done,
            "skipped": self.skipped, "state": int(self.state), "ended_ms": self.ended_ms,
        }  # fmt: skip


class PassTable:
    """All passes that one partition knows.

    Attributes:
        by_name: every pass, the oldest first.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Pass] = {}
        self._changed: dict[str, None] = {}

    def recover(self, rows: list[TableRow]) -> None:
        """Begin with what the last checkpoint left.

        Raises:
            UnknownVersion: a newer build wrote a row.
        """
        found: list[Pass] = []
        for key, value in rows:
            if value is None:
                continue
            if value[0] != _ROW_VERSION:
                raise UnknownVersion(f"a pass's row of version {value[0]}; this build knows {_ROW_VERSION}")
            values = json.loads(value[1:])
            values["state"] = PassState(values["state"])
            found.append(Pass(key.decode(), **values))
        self.by_name = {work.name: work for work in sorted(found, key=lambda work: work.sequence)}

    @property
    def running(self) -> Pass | None:
        """The oldest pass that is not worked off."""
        return next((work for work in self.by_name.values() if work.state == PassState.RUNNING), None)

    # ------------------------------------------------------------ records

    def apply(self, record: Record, age_ms: int, messages: Messages, applied: Applied) -> U8:
        """Begin, end or stop a pass; one that is known already stays as it is."""
        document, work = decode_document(record.document), self.by_name.get(record.name)
        outcome = Outcome.DONE
        if document["do"] in BEGINNING:
            if work is None:
                self.by_name[record.name] = Pass(
                    record.name, record.sequence, document, _counted(document, messages)
                )
                self._changed[record.name] = None
            elif work.work != document:
                outcome = Outcome.EXISTS
        elif work is None:
            outcome = Outcome.NOT_FOUND
        elif work.state == PassState.RUNNING:
            work.state = PassState.ENDED if document["do"] == "end" else PassState.STOPPED
            taken = work.skipped.get("taken", 0)
            work.skipped = document.get("skipped", {}) | ({"taken": taken} if taken else {})
            work.ended_ms = age_ms
            self._changed[record.name] = None
        return np.array([outcome], np.uint8)

    def effective(self, name: str, rows: Entries, first: U64) -> npt.NDArray[np.intp]:
        """Return which rows of a record of a pass take effect; `first`: of the ids that it names."""
        work = self.by_name.get(name)
        if work is None or work.state != PassState.RUNNING:
            return np.empty(0, np.intp)
        state = filter_of(work.work["filter"]).state
        found = np.flatnonzero(matching(rows, state, work.sequence) & (rows["first"] == first))
        if len(found) < 2:
            return found
        # A message that is named twice is changed by its first row, and is newer than the pass for the second.
        return found[np.sort(np.unique(keys_of(rows)[found], return_index=True)[1])]

    def worked(self, name: str, outcomes: U8) -> None:
        """Count what a record of a pass has done."""
        work = self.by_name.get(name)
        done = int(np.count_nonzero(outcomes == Outcome.DONE))
        taken = int(np.count_nonzero(outcomes == Outcome.TAKEN))
        if work is not None and (done or taken):
            work.done += done
            if taken:
                work.skipped = work.skipped | {"taken": work.skipped.get("taken", 0) + taken}
            self._changed[name] = None

    def expire(self, age_ms: int, stamp: int) -> None:
        """Forget passes that ended long ago; of very many, those that ended a while ago, the oldest first."""
        if not self.by_name:
            return
        ended = [work for work in self.by_name.values() if work.state != PassState.RUNNING]
        surplus = len(ended) - PASSES_KEPT
        for place, work in enumerate(ended):
            if age_ms - work.ended_ms > (PASS_RETRIED_MS if place < surplus else PASS_MEMORY_MS):
                del self.by_name[work.name]
                self._changed[work.name] = None

    # ------------------------------------------------------------ checkpoints

    def changed_rows(self) -> list[TableRow]:
        """Return the rows that changed since the last call; from now on they count as being on disk."""
        rows = []
        for name in self._changed:
            work = self.by_name.get(name)
            value = None if work is None else bytes((_ROW_VERSION,)) + json.dumps(work.fields()).encode()
            rows.append(TableRow(name.encode(), value))
        self._changed.clear()
        return rows

    def export(self) -> list[tuple[str, dict[str, Any]]]:
        """Return everything known, by name."""
        return sorted((name, work.fields()) for name, work in self.by_name.items())


def _counted(document: dict[str, Any], messages: Messages) -> int:
    """Return how many messages are in the state that a pass is about."""
    dead = filter_of(document["filter"]).state == State.DEAD
    return messages.dead if dead else messages.waiting


def fault_of_pass(document: str) -> str | None:
    """Say what is wrong with what a client asks of a pass, or None."""
    try:
        found = decode_document(document)
    except ValueError as error:
        return f"a pass is asked for in a JSON object, not {document[:80]!r}: {error}"
    if found == {"do": "stop"}:
        return None
    do = found.get("do")
    if not isinstance(do, str) or do not in BEGINNING or set(found) != {"do", "filter", *BEGINNING[do]}:
        return f'a pass is {{"do":…,"filter":…}} of {", ".join(BEGINNING)} with what it needs, not {document:.200}'
    for name in BEGINNING[do]:
        (low, high), value = _BOUNDS[name], found[name]
        if type(value) is not int or not low <= value <= high:
            return f"{name} is {low} to {high}, not {value!r:.80}"
    try:
        wanted = filter_of(found["filter"] if isinstance(found["filter"], dict) else {})
    except FilterRefused as refused:
        return str(refused)
    if wanted.job and len(job := found["filter"]["job"]) > 2 * len(wanted.job):
        # Records of older builds may have spaces between the digits, however many: they would be kept.
        return f"the job of a filter is its key in hex without spaces, not {job!r:.80}"
    dead = wanted.state == State.DEAD
    if do != "purge" and dead != (do == "redrive"):
        return (
            f"{do} is for messages that {'are dead' if do == 'redrive' else 'wait'}, not for {document:.200}"
        )
    return None

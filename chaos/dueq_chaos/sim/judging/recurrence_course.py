"""The rules of recurrences: one message for each tick, whatever happens.

The committed records are judged, one after the other. A recurrence that waits has to wait for a tick of its terms, a
FIRE that brings a message has to move it on to the very next tick, and one that brings none needs a reason. Once
everything is quiet no tick is overdue (`recurring`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dueq import limits
from dueq.core.ports.entry import State
from dueq.recurring.terms import Terms, packed, terms_of
from dueq.recurring.ticks import due_of, next_tick
from dueq_chaos.sim.reference.bodies import BYTES
from dueq_chaos.sim.reference.naive import Naive
from dueq_chaos.sim.reference.naive_entry import Told
from dueq_chaos.sim.reference.naive_recurrences import NaiveRecurrence
from dueq_codecs.records import Record, RecordKind

_CLOCKS_MS = 1_000
"""By so much a leader may take an instant for come that has not, where clocks are wrong."""


@dataclass
class Deeds:
    """The effects of one record on messages of recurrences.

    Attributes:
        fired: key, payload, due, first instant and rank of each new message.
        taken_back: key of each message that went, and token of the lease that it had; 0: it waited.
        wrong: what must not have happened; "" when nothing has.
    """

    fired: list[tuple[int, bytes, int, int, int]] = field(default_factory=list)
    taken_back: list[tuple[int, int]] = field(default_factory=list)
    wrong: str = ""


class Course:
    """The recurrences of one partition, as its committed records show them."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, int]] = {}  # name -> number, next: before a record
        self._live: dict[int, int] = {}  # key -> token of its lease: before a record
        self._brought_back: set[int] = set()  # keys of dead messages that a REDRIVE has named
        self._unfinished: set[int] = set()
        self._newest_ms = 0
        self._is_now = (
            False  # the record's stamp is its leader's clock, and not the stamp of an earlier record
        )

    def before(self, record: Record, naive: Naive) -> None:
        """Look at what there is before a record is applied."""
        self._is_now = record.stamp > self._newest_ms
        self._newest_ms = max(self._newest_ms, record.stamp)
        if record.kind == RecordKind.REDRIVE:
            named = zip(record.target_sequence.tolist(), record.target_row.tolist(), strict=True)
            self._brought_back |= {sequence << 16 | row for sequence, row in named}
        if record.kind not in (RecordKind.RECURRENCE, RecordKind.FIRE):
            return
        self._before = {name: (each.number, each.next) for name, each in naive.recurrences.by_name.items()}
        self._live = {key: entry.token for key, entry in naive.live.items()}
        # The tick may be logged while a REDRIVE is: the dead message was finished when the leader looked.
        self._unfinished = {
            entry.recurrence
            for key, entry in naive.live.items()
            if entry.state != State.DEAD and key not in self._brought_back
        }

    def after(self, record: Record, naive: Naive, told: Told) -> Deeds:
        """Judge what the record has done; one that repeats a request does nothing."""
        deeds = Deeds()
        if record.kind == RecordKind.FIRE:
            for at in range(record.rows):
                deeds.wrong = deeds.wrong or self._fired(record, at, naive, deeds)
        elif record.kind == RecordKind.RECURRENCE:
            deeds.taken_back = sorted((key, self._live[key]) for key in self._live.keys() - naive.live.keys())
            deeds.wrong = self._acted(record, naive) if told.effective else ""
        return deeds

    def _fired(self, record: Record, at: int, naive: Naive, deeds: Deeds) -> str:
        key, tick, due = record.sequence << 16 | at, int(record.tick[at]), int(record.due[at])
        number, following = int(record.recurrence[at]), int(record.following[at])
        entry = naive.live.get(key)
        name, known = next(
            ((name, each) for name, each in naive.recurrences.by_name.items() if each.number == number),
            ("", None),
        )
        if known is None:
            return f"{key} is a message of no recurrence" if entry is not None else ""
        if entry is not None:
            terms, group = _terms_of(known), naive.groups.names.get(entry.group, "")
            payload = BYTES[bytes.fromhex(terms.body)] if terms.body else known.payload
            deeds.fired.append((key, payload, entry.due, entry.first, terms.rank))
            if (entry.rank, group) != (terms.rank, terms.group):
                return (
                    f"{name} says rank {terms.rank} and group {terms.group!r}, and its message {key} has"
                    f" {entry.rank} and {group!r}"
                )
        if not tick or self._before[name][1] != tick:
            return ""  # it belongs to no tick, or has come too late
        terms = _terms_of(known)
        wanted = next_tick(terms, known.anchor, tick)
        if entry is None:
            if due:
                return f"{name} waits for {tick}, and has no message for it"
            return (
                ""
                if self._may_skip(record.stamp, name, known, terms, tick, following)
                else (f"{name} skips {tick}, up to {following}, at {record.stamp}, for no reason")
            )
        if following != wanted:
            return f"{name} goes on to {following} after {tick}, and its next tick is {wanted}"
        if due != due_of(terms, name, tick):
            return f"the message of {name} for {tick} is due at {due}"
        if terms.overlap == "skip" and number in self._unfinished:
            return f"{name} has a message for {tick}, and an unfinished one"
        return ""

    def _may_skip(
        self, stamp: int, name: str, known: NaiveRecurrence, terms: Terms, tick: int, following: int
    ) -> bool:
        after_tick = next_tick(terms, known.anchor, tick)
        if (
            terms.overlap == "skip"
            and following == after_tick
            and stamp >= tick - _CLOCKS_MS
            and known.messages
        ):
            return True  # its message was unfinished when the leader looked: the end may be a record before this one
        if tick <= known.past or tick in known.coming:
            return following == next_tick(terms, known.anchor, max(tick, known.past))
        missed_ms = stamp - limits.MISSED_AFTER_MS
        if due_of(terms, name, tick) > missed_ms:
            return False
        # No tick is skipped that is one of the latest so many of those that were missed, or was not missed.
        left_ms = following or limits.DUE_MS_MAX
        for _ in range(terms.missed):
            if not left_ms or due_of(terms, name, left_ms) > missed_ms:
                return False
            left_ms = next_tick(terms, known.anchor, left_ms)
        return bool(terms.missed) or following == next_tick(
            terms, known.anchor, following - 1 if following else missed_ms
        )

    def _acted(self, record: Record, naive: Naive) -> str:
        """Check that a recurrence waits for the very next tick, and that none of its taken messages is left."""
        known = naive.recurrences.by_name.get(record.name)
        number, waited_for = self._before.get(record.name, (0, 0))
        if known is None:
            return _left(naive, number, record, self._newest_ms) if number else ""
        if known.number == number and '"action":"create"' in record.document:
            # Refused: it is there. A leader whose clock is behind does not find the ticks that were skipped again.
            stays = known.next == waited_for
            return (
                ""
                if stays
                else f"{record.name} waits for {known.next}, not {waited_for}, after {record.document}"
            )
        if known.paused and known.next:
            return f"{record.name} is paused, and waits for {known.next}"
        resumed = known.number == number and not waited_for and '"action":"resume"' in record.document
        if resumed and self._is_now and 0 < known.next < record.stamp - _CLOCKS_MS:
            return (
                f"{record.name} is resumed at {record.stamp}, and waits for {known.next}, a tick of its pause"
            )
        if not known.paused and (wrong := self._waits_wrongly(record.name, known)):
            return wrong
        takes_back = known.number == number and '"action":"resume"' not in record.document
        return (
            _left(naive, number, record, self._newest_ms)
            if takes_back and "create" not in record.document
            else ""
        )

    def _waits_wrongly(self, name: str, known: NaiveRecurrence) -> str:
        terms = _terms_of(known)
        # A leader whose clock is behind takes back what was made ahead: no tick was before it began. What was
        # skipped by an earlier stamp does not come again.
        soonest = next_tick(terms, known.anchor, max(self._newest_ms, known.past, known.anchor))
        while soonest in known.coming:
            soonest = next_tick(terms, known.anchor, soonest)
        if not known.next:
            return f"{name} waits for nothing, and {soonest} comes" if soonest else ""
        if next_tick(terms, known.anchor, known.next - 1) != known.next:
            return f"{name} waits for {known.next}, which is no tick"
        if soonest and known.next > soonest:
            return f"{name} waits for {known.next}, and {soonest} comes before"
        return ""


def _left(naive: Naive, number: int, record: Record, newest_ms: int) -> str:
    """Nothing that was to come waits any more; what a consumer has been given may be on its way.

    `newest_ms`: the latest stamp; a leader whose clock is behind does not let what has come be to come again.
    """
    if '"action":"trigger"' in record.document:
        return ""
    for key, entry in naive.live.items():
        untouched = entry.state == State.WAITING and not entry.attempt
        if entry.recurrence == number and untouched and entry.first > newest_ms:
            return f"{record.name}: {record.document}, and message {key} of it is still to come"
    return ""


def _terms_of(known: NaiveRecurrence) -> Terms:
    return terms_of(packed(known.terms))

"""Care for recurrences: what the leader of a partition does so that each fires at its instants.

    waits for a tick ──some seconds before it──► FIRE: a message that is due at the tick, and the next tick
                     ──missed, or overlapping──► FIRE without a message
    a client's wish  ──────────────────────────► RECURRENCE, with the tick that it waits for then
    a client's "now" ──────────────────────────► FIRE: a message that belongs to no tick

A FIRE is logged seconds ahead: its message is leased and pushed like any other, at its millisecond. Nothing here is
replicated. All of it follows from the table, and a new leader begins with what that shows.

There is one heap of instants at which to look, with one entry for each recurrence that waits. All recurrences are gone
through only when a leadership begins.

One record at a time is on its way for each recurrence. So a value that the leader computes from the table is still true
when the record is applied, and the messages that a RECURRENCE takes back are known when it is appended.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32
from zoneinfo import ZoneInfoNotFoundError

import numpy as np

from dueq import limits
from dueq.core.partition.care import CaredPartition
from dueq.core.partition.recurrence_requests import Wish, wish_of
from dueq.core.partition.requests import Refusal, check_store, invalid
from dueq.core.ports.entry import is_wide
from dueq.core.state.applied import Applied
from dueq.core.state.recurrence import Fired, Recurrence
from dueq.core.state.recurrence_table import CREATE, PAUSE, RESUME, TRIGGER, UPDATE, RecurrenceTable
from dueq.core.turn.context import Context
from dueq.core.turn.deadlines import Deadlines
from dueq.errors import InvalidRequest
from dueq.instant import Now
from dueq.recurring.checking import check_terms
from dueq.recurring.terms import Terms, changed, packed, terms_of, unpacked
from dueq.recurring.ticks import due_of, first_made_up, next_tick
from dueq_codecs.messages import ChangeRequest, Code
from dueq_codecs.meta import Meta, packed_headers, prefix_of
from dueq_codecs.records import U64, Record, RecordKind
from dueq_codecs.rules import crc_joined, homes_of_recurrence

FIRE_ROWS_MAX: Final = 512
"""Recurrences that fire in one record, and missed ticks to be made up for, at most: some milliseconds of work."""
_LOOK_AGAIN_US: Final = 30_000_000
"""The heap is looked at as often: mesh time is no monotonic clock."""
_NEVER_HELD: Final = 0, -1
_BUSY_MS: Final = 20
_NO_RULES_MS: Final = 60_000
"""A recurrence whose instants cannot be computed is looked at again after this long."""
_Row = tuple[Recurrence, int, int, int]
"""Of a FIRE: the recurrence, tick, following tick and due."""


class Recurrences:
    """The recurrences of one partition, while it is led here."""

    def __init__(self, ctx: Context, partition: CaredPartition) -> None:
        self._ctx, self._partition = ctx, partition
        self._looks: Deadlines[int] = Deadlines()  # when to look at a recurrence (Unix ms), by number
        self._blocked: dict[int, None] = {}  # numbers of those that wait for an unfinished message
        self._under_way: dict[str, None] = {}  # names of those about which a record is on its way
        self._fired: dict[int, tuple[str, ...]] = {}  # sequence of a FIRE on its way -> its names
        self._is_held = False  # mesh time is not certain
        self._held_ms = _NEVER_HELD  # from when until when that was so the last time

    @property
    def _table(self) -> RecurrenceTable:
        return self._partition.timeline.recurrences

    def begin(self, now: Now) -> None:
        """The partition is served from now on."""
        self.end()
        for recurrence in self._table.by_number.values():
            self._look_later(recurrence)

    def end(self) -> None:
        """The partition is led no more."""
        self._looks, self._is_held, self._held_ms = Deadlines(), False, _NEVER_HELD
        self._blocked.clear()
        self._under_way.clear()
        self._fired.clear()
        self._ctx.wake_ups.set(self._partition.uid, None)

    # -------------------------------------------------------------- requests

    def refusal(self, request: ChangeRequest) -> Refusal | None:
        """Return why a well-formed request is not taken just now; None: it is, and a record about it is on its way."""
        wish = wish_of(request)
        strange = self._strange(wish)
        if strange is not None:
            return strange
        if request.name in self._under_way:
            return Refusal(Code.BUSY, f"recurrence {request.name!r} is being changed or fires", _BUSY_MS)
        refusal = self._refusal_of(wish, self._table.get(wish.name))
        if refusal is None:
            self._under_way[wish.name] = None
        return refusal

    def _strange(self, wish: Wish) -> Refusal | None:
        """Refuse what belongs to another partition.

        Where messages have groups a recurrence lives with its group, and its name does not say where that is.
        """
        partition, topic = self._partition, self._partition.topic
        group: str | None = wish.terms.get("group", "" if wish.action == CREATE else None)
        if wish.action == UPDATE and self._table.get(wish.name) is None:
            group = None
        places = homes_of_recurrence(wish.name, group, topic.kind, topic.home_partitions)
        homes = [topic.partitions[place].uid for place in places]
        if partition.uid in homes:
            return None
        of = f"recurrence {wish.name!r}" + (f" with group {group!r}" if group else "")
        return invalid(f"the home of {of} is partition {homes[0]}, not {partition.uid}")

    def _refusal_of(self, wish: Wish, known: Recurrence | None) -> Refusal | None:
        table = self._table
        if wish.action == TRIGGER and known is not None:
            return check_store(self._ctx.inserts_refused)  # its message is stored as if it were inserted
        if wish.action in (UPDATE, RESUME) and known is not None:
            terms = _terms_after(known, wish)
            try:
                check_terms(terms, terms.start_ms or known.anchor, 0)
            except InvalidRequest as error:
                return invalid(str(error))
        if wish.action == CREATE and known is None and len(table) >= limits.RECURRENCES_MAX:
            return _full(f"{len(table)} recurrences, no more", self._partition)
        more = _growth(wish, known)
        if wish.action == CREATE or wish.payload or more > 0:
            full = check_store(self._ctx.inserts_refused)  # what it brings is logged and stored
            if full is not None:
                return full
        if more > 0 and table.bytes + more > limits.RECURRENCES_BYTES_MAX:
            return _full(
                f"{table.bytes} bytes of recurrences, {limits.RECURRENCES_BYTES_MAX} at most", self._partition
            )
        return None

    def fill(self, record: Record, request: ChangeRequest, now: Now) -> bytes:
        """Make the record of a request that was taken; returns its body."""
        wish = wish_of(request)
        known = self._table.get(wish.name)
        now_ms = self._mesh_ms(now)
        record.name = wish.name
        if wish.action == TRIGGER and known is not None:
            record.kind = RecordKind.FIRE
            return self._fill(record, [(known, 0, 0, now_ms)])
        record.document = request.document
        record.shared, record.shared_size = request.shared, request.shared_size
        anchor_ms, following = self._from_now_on(wish, known, now_ms)
        record.tick, record.following = np.array([anchor_ms], np.uint64), np.array([following], np.uint64)
        if known is not None and wish.action not in (CREATE, TRIGGER, RESUME):
            self._take_back(record, known, now_ms)
        return b""

    def _from_now_on(self, wish: Wish, known: Recurrence | None, now_ms: int) -> tuple[int, int]:
        """Return the anchor and the tick that a recurrence waits for once a wish is granted."""
        if known is None or wish.action == CREATE:
            if wish.action != CREATE:
                return 0, 0
            terms = terms_of(packed(wish.terms))
            anchor_ms = terms.start_ms or now_ms
            return anchor_ms, next_tick(terms, anchor_ms, now_ms)
        terms, anchor_ms, following = terms_of(known.document), known.anchor, known.next
        if wish.action == UPDATE:
            before, terms = terms, _terms_after(known, wish)
            if terms.when != before.when:
                anchor_ms = terms.start_ms or (now_ms if wish.terms.get("every_ms") else anchor_ms)
                following = next_tick(terms, anchor_ms, now_ms)
            elif coming := _coming(known, now_ms):
                # An update just before may have taken earlier ones back, and waits for the first of them. One that a
                # consumer has had through a change of the terms may be no tick any more.
                ticks = [fired.tick for fired in coming] + ([following] if following else [])
                following = next_tick(terms, anchor_ms, min(ticks) - 1)
        elif wish.action == RESUME and known.paused:
            following = next_tick(terms, anchor_ms, now_ms)
        paused = known.paused and wish.action != RESUME
        return anchor_ms, 0 if paused or wish.action == PAUSE else following

    def _take_back(self, record: Record, known: Recurrence, now_ms: int) -> None:
        """Name the messages whose instants are to come, and withhold what is granted of them."""
        coming = _coming(known, now_ms)
        record.first = np.array([fired.first for fired in coming], np.uint64)
        record.target_sequence = np.array([fired.sequence for fired in coming], np.uint64)
        record.target_row = np.array([fired.row for fired in coming], np.uint16)
        keys: U64 = (record.target_sequence << np.uint64(16)) | record.target_row
        record.token = self._partition.dispatcher.withhold(self._partition.uid, keys)

    # -------------------------------------------------------------- what happens

    def applied(self, record: Record, applied: Applied, now: Now) -> None:
        """A record was applied: look when the recurrences that it concerns fire next."""
        if record.name and record.kind in (RecordKind.RECURRENCE, RecordKind.FIRE):
            self._under_way.pop(record.name, None)
            self._look_later(self._table.get(record.name))
        for name in self._fired.pop(record.sequence, ()):
            self._under_way.pop(name, None)
            self._look_later(self._table.get(name))
        if self._blocked and len(applied.ended) and is_wide(applied.ended):
            for number in self._blocked.keys() & set(applied.ended["recurrence"].tolist()):
                self._looks.set(number, 0)
                self._ctx.attend(self._partition.uid)

    def _look_later(self, recurrence: Recurrence | None) -> None:
        if recurrence is not None and recurrence.next:
            self._looks.set(recurrence.number, _look_at_ms(recurrence))
            self._ctx.attend(self._partition.uid)

    def tick(self, now: Now) -> bool:
        """Fire the recurrences whose ticks are near; returns whether more is to be done at once."""
        partition = self._partition
        if not partition.serving or self._looks.next_us() is None:
            return False
        now_ms = self._mesh_ms(now)
        self._note_hold(now_ms)
        if self._is_held:
            return False  # it is looked at again when the clock is released
        if self._ctx.inserts_refused:
            return True
        self._fire(now_ms, now)
        next_ms = self._looks.next_us()
        if next_ms is not None and next_ms <= now_ms:
            return True
        if next_ms is not None:
            wait_us = min((next_ms - now_ms) * 1000, _LOOK_AGAIN_US)
            self._ctx.wake_ups.set(partition.uid, now.mono_us + wait_us)
        return False

    def _note_hold(self, now_ms: int) -> None:
        """Note since when the clock is being measured, or that it is no more."""
        before, self._is_held = self._is_held, self._ctx.clock.hold
        from_ms, until_ms = self._held_ms
        if before != self._is_held:
            goes_on = before or now_ms - until_ms <= limits.MISSED_AFTER_MS
            self._held_ms = (from_ms if goes_on else now_ms), now_ms

    def _missed_until_ms(self, tick: int, now_ms: int) -> int:
        """Return up to when the ticks from this one on are missed: those that the clock has held up are not."""
        from_ms, until_ms = self._held_ms
        return (min(now_ms, from_ms) if tick <= until_ms else now_ms) - limits.MISSED_AFTER_MS

    # -------------------------------------------------------------- firing

    def _fire(self, now_ms: int, now: Now) -> None:
        """Move on the recurrences to look at by now, in one record for each shared body and one for all others."""
        records: dict[bytes, list[_Row]] = {}
        size = looked = 0
        for number in self._looks.take_due(now_ms, FIRE_ROWS_MAX):
            self._blocked.pop(number, None)
            recurrence = self._table.by_number.get(number)
            if recurrence is None or not recurrence.next or recurrence.name in self._under_way:
                continue
            if size + recurrence.weight > limits.REQUEST_BYTES_MAX or looked >= FIRE_ROWS_MAX:
                self._looks.set(number, now_ms)
                continue
            if recurrence.next <= self._missed_until_ms(recurrence.next, now_ms):
                looked += terms_of(recurrence.document).missed
            row = self._step(recurrence, now_ms)
            if row is not None:
                records.setdefault(recurrence.body, []).append((recurrence, *row))
                size += recurrence.weight  # no message is longer
                self._under_way[recurrence.name] = None
        for rows in records.values():
            self._propose(rows, now_ms, now)

    def _propose(self, rows: list[_Row], now_ms: int, now: Now) -> None:
        record = Record(RecordKind.FIRE, self._partition.uid, 0, 0, 0)
        sequence = self._partition.propose(record, now, self._fill(record, rows))
        if sequence:
            self._fired[sequence] = tuple(recurrence.name for recurrence, *_ in rows)
            return
        for recurrence, *_ in rows:  # too much is not applied yet: try again soon
            del self._under_way[recurrence.name]
            self._looks.set(recurrence.number, now_ms)

    def _fill(self, record: Record, rows: list[_Row]) -> bytes:
        """Put rows that have the same shared body, or none, into a FIRE; returns its body."""
        name = rows[0][0].body
        if not name:
            return _fill(record, rows, [recurrence.payload for recurrence, *_ in rows])
        body = self._partition.timeline.bodies.by_name[name]
        record.shared, record.shared_size = body.name, body.size
        own = _fill(record, rows, [b""] * len(rows))
        crcs = [crc_joined(crc, body.crc, body.size) for crc in record.crc.tolist()]
        record.crc = np.array(crcs, np.uint32)
        record.size += np.uint32(body.size)
        return own

    def _step(self, recurrence: Recurrence, now_ms: int) -> tuple[int, int, int] | None:
        """Return tick, following tick and due (0: skipped) of the next step; None: it waits, and is looked at later."""
        terms, anchor_ms, tick = terms_of(recurrence.document), recurrence.anchor, recurrence.next
        missed_ms = self._missed_until_ms(tick, now_ms)
        look_at_ms = self._waits_until_ms(recurrence, terms, now_ms)
        if look_at_ms > now_ms:
            self._looks.set(recurrence.number, look_at_ms)
            return None
        try:
            if recurrence.has_message(tick):
                return tick, next_tick(terms, anchor_ms, max(tick, recurrence.past)), 0
            due_ms = due_of(terms, recurrence.name, tick)
            if due_ms <= missed_ms:
                first = first_made_up(terms, anchor_ms, tick, missed_ms, recurrence.name)
                if first != tick:
                    return tick, first, 0
            following = next_tick(terms, anchor_ms, tick)
        except ZoneInfoNotFoundError:
            self._ctx.log("error", "recurrence.zone_unknown", name=recurrence.name, zone=terms.zone)
            self._looks.set(recurrence.number, now_ms + _NO_RULES_MS)
            return None
        skips = terms.overlap == "skip" and recurrence.unfinished
        return tick, following, 0 if skips else due_ms

    def _waits_until_ms(self, recurrence: Recurrence, terms: Terms, now_ms: int) -> int:
        """Return when a recurrence can be decided about: a message that is unfinished now may not be at the tick."""
        coming = _coming(recurrence, now_ms)
        if len(coming) >= limits.FIRED_AHEAD_MAX:
            return coming[0].first
        if terms.overlap == "skip" and recurrence.unfinished and recurrence.next > now_ms:
            self._blocked[recurrence.number] = None
            return recurrence.next
        return _look_at_ms(recurrence)

    def _mesh_ms(self, now: Now) -> int:
        return self._ctx.clock.mesh_now_us(now) // 1000


def _coming(recurrence: Recurrence, now_ms: int) -> list[Fired]:
    """Return the messages that were fired, and whose instants are to come."""
    return [fired for fired in recurrence.fired if fired.first > now_ms]


def _look_at_ms(recurrence: Recurrence) -> int:
    return recurrence.next - limits.FIRE_AHEAD_MS


def _terms_after(known: Recurrence, wish: Wish) -> Terms:
    return terms_of(packed(changed(unpacked(known.document), wish.terms)))


def _growth(wish: Wish, known: Recurrence | None) -> int:
    """Return how many bytes more recurrences weigh once a wish is granted; the name of a shared body is not counted."""
    if known is None:
        return (
            len(wish.name) + len(packed(wish.terms)) + len(wish.payload or b"")
            if wish.action == CREATE
            else 0
        )
    if wish.action != UPDATE:
        return 0
    terms = packed(changed(unpacked(known.document), wish.terms))
    payload = known.payload if wish.payload is None else wish.payload
    return len(terms) - len(known.document) + len(payload) - len(known.payload)


def _fill(record: Record, rows: list[_Row], payloads: list[bytes]) -> bytes:
    """Put rows with these payloads into a FIRE; returns its body."""
    headers = [packed_headers(terms_of(recurrence.document).headers) for recurrence, *_ in rows]
    record.keyed = Meta.HEADERS if any(headers) else Meta.NONE
    stored = [
        prefix_of(record.keyed, b"", packed) + payload if due else b""
        for (_, _, _, due), packed, payload in zip(rows, headers, payloads, strict=True)
    ]
    _rank_and_group(record, [terms_of(recurrence.document) for recurrence, *_ in rows])
    record.recurrence = np.array([recurrence.number for recurrence, *_ in rows], np.uint64)
    for column, name in ((1, "tick"), (2, "following"), (3, "due")):
        setattr(record, name, np.array([row[column] for row in rows], np.uint64))
    record.size = np.array(list(map(len, stored)), np.uint32)
    record.crc = np.array(list(map(crc32, stored)), np.uint32)
    return b"".join(stored)


def _rank_and_group(record: Record, terms: list[Terms]) -> None:
    if any(each.rank for each in terms):
        record.rank = np.array([each.rank for each in terms], np.uint16)
    if any(each.group for each in terms):
        places: dict[str, int] = {}
        record.group = np.array([places.setdefault(each.group, len(places)) for each in terms], np.uint16)
        record.groups = tuple(places)


def _full(what: str, partition: CaredPartition) -> Refusal:
    return Refusal(Code.TOO_MANY_RECURRENCES, f"partition {partition.uid} has {what}")

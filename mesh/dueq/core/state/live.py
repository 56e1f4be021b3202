"""The live messages of one partition, and the changes that the rows of a record make to them.

    state    record              becomes
    -        INSERT              WAITING at max(due, stamp)
    WAITING  LEASE               LEASED, token = this record, attempt + 1
    LEASED   LEASE               the same, if the row names its token: a renewal
    WAITING  MOVE / CANCEL       WAITING at the new due / finished
    WAITING  CHANGE              WAITING since when it did, with another rank
    WAITING  TRIGGER             WAITING from now on, and nothing but its consumers' credit holds it
    LEASED   MOVE / CANCEL / …   the same, its lease taken back, if the row's token revokes it; else "leased"
    LEASED   ACK                 finished
    LEASED   NACK                WAITING at max(due, stamp + delay)
    LEASED   EXTEND              LEASED with another length
    LEASED   RELEASE             WAITING at max(due, stamp + delay), attempt - 1
    LEASED   EXPIRE              WAITING at max(due, stamp + delay)
    LEASED   NACK, EXPIRE        DEAD instead, if that was its last attempt or the row says so
    WAITING  LAPSE               finished or DEAD, as the topic says, if its `expires` is over
    DEAD     DISCARD             finished
    DEAD     REDRIVE             WAITING at max(due, stamp), as if it had never been tried
    WAITING  REVEAL              WAITING at max(due, stamp), if it was hidden until its job, now committed, was decided

A message of an open job waits until the job's `until` at the earliest and is not leased. A message of an aborted or
cancelled job is not moved, and is finished when it would begin to wait or would be leased.

A message with a unique key bears it while it waits or is leased (`names`, `keyed`). A REDRIVE of a message whose key
another one has got meanwhile is left undone.

If several rows name one message, they take effect one after the other: rows are worked off in rounds of distinct
messages, so that each round is a batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import (
    FLAG_DETACHED,
    FLAG_TRIGGERED,
    FULL,
    Entries,
    State,
    is_full,
    keys_of,
    versions_of,
    widened,
)
from dueq.core.ports.names import hashes_of
from dueq.core.state.applied import Applied
from dueq.core.state.entry_rows import Slots
from dueq.core.state.insertion import inserted_entries
from dueq.core.state.keyed import decide
from dueq.core.state.names import Names
from dueq.core.state.residency import keys_named
from dueq.core.state.side_tables import SideTables
from dueq.core.state.steps import Mask, Steps, both, keyed_of, pick, whole
from dueq.core.state.table import OnDisk, Table
from dueq.core.state.window import Window
from dueq.errors import UnknownVersion
from dueq.limits import DELAY_MS_MAX, RELEASE_AGE_MS_MAX, RELEASE_DELAY_MS_MAX
from dueq_codecs.records import (
    LEVEL_OF_KINDS,
    NO_U32,
    U8,
    U32,
    U64,
    Fate,
    JobState,
    Outcome,
    Record,
    RecordKind,
)

Index = npt.NDArray[np.intp]
"""Rows of a record."""

_CANCELLING = (RecordKind.CANCEL, RecordKind.RECURRENCE)
ATTEMPT_MAX = (1 << 16) - 1
LEASE_MAX_U32 = (1 << 32) - 1


class LiveMessages(Steps):
    """The live messages, and the changes that records make to them. Everything here happens inside `apply`."""

    def __init__(
        self, table: Table, window: Window, tables: SideTables, names: Names, scheduled: int, dead: int
    ) -> None:
        super().__init__(table, window, tables, names, scheduled, dead)
        self._groups = tables.groups
        self._change_of: dict[RecordKind, Callable[[Record, Index, Slots, Entries, Applied], U8]] = {
            RecordKind.MOVE: self._withdraw,
            RecordKind.CANCEL: self._withdraw,
            RecordKind.CHANGE: self._withdraw,
            RecordKind.TRIGGER: self._withdraw,
            RecordKind.RECURRENCE: self._withdraw,
            RecordKind.ACK: self._settle,
            RecordKind.NACK: self._settle,
            RecordKind.EXTEND: self._settle,
            RecordKind.RELEASE: self._settle,
            RecordKind.EXPIRE: self._settle,
            RecordKind.REVEAL: self._reveal,
            RecordKind.LAPSE: self._lapse,
            RecordKind.DISCARD: self._discard,
            RecordKind.REDRIVE: self._redrive,
        }

    # ------------------------------------------------------------ records

    def insert(self, record: Record, chosen: Index | None, job: int, applied: Applied, body: int = 0) -> None:
        """Apply an INSERT of the job and the shared body with these numbers, or a FIRE.

        Payloads of rows not `chosen` are garbage at once.
        """
        groups = self._group_numbers(record, chosen)
        if len(record.key_high) or len(record.once_high):
            chosen, gone, applied.met = decide(record, chosen, job, self)
            if gone:
                self._lose_keys(np.array(gone, np.intp))
        rows = self.table.fitting(inserted_entries(record, job, groups, body))
        if chosen is not None:
            kept = np.zeros(len(rows), np.bool_)
            kept[chosen] = True
            self.note_finished(pick(rows, ~kept))
            rows = pick(rows, kept)
        if not len(rows):
            return
        self.forecast.begin(rows, record.stamp)
        slots = self._insert_rows(rows)
        self.table.mark(slots)
        self.scheduled += len(rows)
        self._count(rows, 1, 0)
        applied.waiting = self.window.begin(rows)

    def _lose_keys(self, slots: Slots) -> None:
        """Let waiting messages go whose keys others have taken."""
        rows = self.table.take(slots)
        self._stop_waiting(rows)
        self._finish(slots, rows, bearing=False)

    def _group_numbers(self, record: Record, chosen: Index | None) -> U32:
        """Return the number of each group of an INSERT that has a row that takes effect."""
        if not len(record.group):
            return NO_U32
        used = np.unique(record.group if chosen is None else record.group[chosen])
        return self._groups.numbers(record.groups, used.tolist())

    def lease(self, record: Record, slots: Slots, applied: Applied) -> None:
        """Apply a LEASE."""
        every = np.arange(len(slots), dtype=np.intp)
        rounds = _rounds(slots, every)
        for at in rounds:
            self._grant(record, at, slots[at], applied)
        if len(rounds) > 1:
            applied.leased = self._as_they_are(applied.leased)

    def change(self, record: Record, slots: Slots, chosen: Index | None, applied: Applied) -> U8:
        """Apply a record of any other kind to its `chosen` rows (None: all); returns an outcome per row.

        Raises:
            UnknownVersion: the kind is unknown.
        """
        handler = self._change_of.get(record.kind)
        if handler is None:
            raise UnknownVersion(f"record {record.sequence} is of kind {record.kind}, which is unknown")
        whole = chosen is None
        if chosen is None:
            chosen = np.arange(len(slots), dtype=np.intp)
        rounds = _rounds(slots, chosen)
        if whole and len(rounds) == 1:
            return handler(record, chosen, slots, self.table.take(slots), applied)
        outcomes = np.full(len(slots), Outcome.UNKNOWN, np.uint8)
        for at in rounds:
            named = slots[at]
            outcomes[at] = handler(record, at, named, self.table.take(named), applied)
        if len(rounds) > 1:
            applied.waiting = self.window.deliverable(self._as_they_are(applied.waiting))
            applied.leased = self._as_they_are(applied.leased)
        return outcomes

    def _as_they_are(self, rows: Entries) -> Entries:
        """Return the present form of rows of which some have changed again since, each once."""
        return self.table.take(self.table.find(np.unique(keys_of(rows)))) if len(rows) else rows

    # ------------------------------------------------------------ rounds of distinct messages

    def _insert_rows(self, rows: Entries) -> Slots:
        if not self.table.placeholders:
            return self.table.add(rows, OnDisk.NOTHING)
        slots = self.table.find(keys_of(rows))
        named = slots != 0  # by a later record of the log: a placeholder is there
        if named.any():
            self.table.fill(slots[named], pick(rows, named), OnDisk.NOTHING)
        if not named.all():
            slots[~named] = self.table.add(pick(rows, ~named), OnDisk.NOTHING)
        return slots

    def _grant(self, record: Record, at: Index, slots: Slots, applied: Applied) -> None:
        rows = self.table.take(slots)
        if len(record.token) and record.token[at].any():
            named = record.token[at] != 0
            self._renew(record, at[named], slots[named], pick(rows, named), applied)
            at, slots, rows = at[~named], slots[~named], pick(rows, ~named)
            if not len(at):
                return
        free = rows["state"] == State.WAITING
        if len(record.first):
            free &= rows["first"] == record.first[at]
        if not whole(free):
            refused = keys_named(record)[at[~free]]
            applied.refused = np.concatenate((applied.refused, refused))
            at, slots, rows = at[free], slots[free], pick(rows, free)
            if not len(at):
                return
        barred = self.jobs.barred(rows)
        if barred is not None:
            self._refuse(keys_named(record)[at[barred]], slots[barred], pick(rows, barred), applied)
            at, slots, rows = at[~barred], slots[~barred], pick(rows, ~barred)
            if not len(at):
                return
        self._stop_waiting(rows)
        self._hold(record, at, slots, rows, applied)
        self.leased += len(rows)
        self._count(rows, 0, 1)

    def _renew(self, record: Record, at: Index, slots: Slots, rows: Entries, applied: Applied) -> None:
        """Give leases that are not over another token: their holder has come back."""
        held = (rows["state"] == State.LEASED) & (rows["token"] == record.token[at])
        held &= rows["first"] == record.first[at]
        if not whole(held):
            applied.refused = np.concatenate((applied.refused, keys_named(record)[at[~held]]))
            at, slots, rows = at[held], slots[held], pick(rows, held)
        if len(at):
            self._hold(record, at, slots, rows, applied)

    def _hold(self, record: Record, at: Index, slots: Slots, rows: Entries, applied: Applied) -> None:
        consumer = record.consumer[at]
        ids = np.frombuffer(b"".join(record.consumers), ">u8").reshape(-1, 2)
        rows["state"] = State.LEASED
        rows["token"] = record.sequence
        rows["attempt"] += rows["attempt"] < ATTEMPT_MAX
        rows["consumer_high"] = ids[consumer, 0]
        rows["consumer_low"] = ids[consumer, 1]
        rows["lease_ms"] = np.minimum(record.lease_ms, LEASE_MAX_U32)[consumer]
        if len(record.detached):
            rows["flags"] |= np.where(record.detached[consumer] != 0, FLAG_DETACHED, 0).astype(np.uint8)
        self.table.put(slots, rows)
        self.table.mark(slots)
        applied.leased = both(applied.leased, rows)

    def _refuse(self, keys: U64, slots: Slots, rows: Entries, applied: Applied) -> None:
        """Lease no message of a job that is not committed; messages of an ended job go."""
        applied.refused = np.concatenate((applied.refused, keys))
        ended = self.jobs.ended(rows)
        if ended is not None:
            gone = pick(rows, ended)
            self._stop_waiting(gone)
            self._finish(slots[ended], gone)

    def _withdraw(self, record: Record, at: Index, slots: Slots, rows: Entries, applied: Applied) -> U8:
        """MOVE, CANCEL, CHANGE or TRIGGER; RECURRENCE, which cancels messages that were never delivered."""
        state = rows["state"]
        same = rows["first"] == record.first[at]
        if record.kind not in _CANCELLING and (ended := self.jobs.ended(rows)) is not None:
            same &= ~ended
        if record.kind == RecordKind.RECURRENCE:  # nobody may ever have been given it
            same &= rows["attempt"] == (state == State.LEASED)
        changed = _differs(record, at, rows, same & (state != State.ABSENT))
        same &= ~changed
        waiting = same & (state == State.WAITING)
        if whole(waiting):
            self._stop_waiting(rows)
            self._withdrawn(record, at, slots, rows, applied)
            return np.zeros(len(at), np.uint8)
        leased = same & (state == State.LEASED)
        token = record.token[at]
        revoked = leased & (token != 0) & (rows["token"] == token)
        outcomes = np.full(len(at), Outcome.NOT_FOUND, np.uint8)
        outcomes[leased] = Outcome.LEASED
        outcomes[changed] = Outcome.CHANGED
        outcomes[same & (state == State.DEAD)] = Outcome.DEAD
        if waiting.any():
            stopped = pick(rows, waiting)
            self._stop_waiting(stopped)
        if revoked.any():
            self._end_leases(pick(rows, revoked), applied)
            rows["attempt"] -= revoked & (rows["attempt"] > 0)
        done = waiting | revoked
        if done.any():
            outcomes[done] = Outcome.DONE
            self._withdrawn(record, at[done], slots[done], pick(rows, done), applied)
        return outcomes

    def _withdrawn(self, record: Record, at: Index, slots: Slots, rows: Entries, applied: Applied) -> None:
        if record.kind in _CANCELLING:
            self._finish(slots, rows)
            return
        if record.version >= LEVEL_OF_KINDS:
            rows = widened(rows)
            rows["version"] = record.sequence
        if record.kind == RecordKind.CHANGE:
            rows["rank"] = record.rank[at]
            self._wait(record, slots, rows, None, applied)
            return
        if record.kind == RecordKind.TRIGGER:
            rows["due"] = max(record.stamp, 0)
            rows["flags"] |= np.uint8(FLAG_TRIGGERED)
        else:
            rows["due"] = record.due[at]
            rows["flags"] &= ~np.uint8(FLAG_TRIGGERED)
        self._wait(record, slots, rows, rows["due"], applied)

    def _settle(self, record: Record, at: Index, slots: Slots, rows: Entries, applied: Applied) -> U8:
        """ACK, NACK, EXTEND, RELEASE or EXPIRE: they need the present lease."""
        held = rows["state"] == State.LEASED
        held &= rows["token"] == record.token[at]
        held &= rows["first"] == record.first[at]
        outcomes = np.zeros(len(at), np.uint8)
        if not whole(held):
            outcomes[~held] = Outcome.STALE
            at, slots, rows = at[held], slots[held], pick(rows, held)
            if not len(at):
                return outcomes
        kind = record.kind
        if kind == RecordKind.EXTEND:
            rows["lease_ms"] = np.minimum(record.amount_ms[at], LEASE_MAX_U32)
            self.table.put(slots, rows)
            self.table.mark(slots)
            applied.leased = both(applied.leased, rows)
            return outcomes
        self._end_leases(rows, applied)
        if kind == RecordKind.ACK:
            self._finish(slots, rows)
            return outcomes
        self._given_back(record, at, slots, self.table.take(slots), applied)
        return outcomes

    def _given_back(self, record: Record, at: Index, slots: Slots, rows: Entries, applied: Applied) -> None:
        """Let messages wait again that their consumers do not have any more, or be dead."""
        counts = np.ones(len(rows), np.bool_)
        if record.kind == RecordKind.RELEASE:
            counts[:] = False
            if len(record.amount_ms):
                old = rows["first"] + np.uint64(RELEASE_AGE_MS_MAX) < np.uint64(max(record.stamp, 0))
                counts = (record.amount_ms[at] > 0) & old
            rows["attempt"] -= ~counts & (rows["attempt"] > 0)
        if record.kind != RecordKind.RELEASE:
            rows["flags"] &= ~np.uint8(FLAG_TRIGGERED)
        if record.document:
            self._headings.note(rows, record.document)
        rows = self._remarked(record, at, rows)
        dies = self._dying(record, at, rows, counts)
        if dies.any():
            self._bury(record, slots[dies], pick(rows, dies), applied)
            at, slots, rows = at[~dies], slots[~dies], pick(rows, ~dies)
            if not len(at):
                return
        not_before = rows["due"]
        if len(record.amount_ms):
            # Never before due, even if this leader's clock is behind that of the leader that pushed it.
            longest = RELEASE_DELAY_MS_MAX if record.kind == RecordKind.RELEASE else DELAY_MS_MAX
            delay = np.minimum(record.amount_ms[at], longest)
            not_before = np.maximum(not_before, delay + np.uint64(max(record.stamp, 0)))
        self._wait(record, slots, rows, not_before, applied)

    def _remarked(self, record: Record, at: Index, rows: Entries) -> Entries:
        """Note why messages are given back; returns the rows, which name the record's row then."""
        if not len(record.reason) or not any(record.reasons):
            return rows
        rows = widened(rows, FULL.itemsize)
        for row, key in enumerate(keys_of(rows).tolist()):
            text = record.reasons[record.reason[at[row]]]
            if text:
                rows["remark"][row] = record.sequence << 16 | int(at[row])
                self.remarks.note(key, text)
        return rows

    def _dying(self, record: Record, at: Index, rows: Entries, counts: Mask) -> Mask:
        """Return which messages are not tried again: it was their last attempt, or the record says so."""
        if record.version < LEVEL_OF_KINDS:
            return np.zeros(len(rows), np.bool_)
        most = np.full(len(rows), self.settings.current.max_attempts, np.uint64)
        if is_full(rows):
            most = np.where(rows["attempts_max"] > 0, rows["attempts_max"], most)
        dies: Mask = counts & (most > 0) & (rows["attempt"] >= most)
        if len(record.fate):
            dies |= record.fate[at] == Fate.DEAD
        return dies

    def _lapse(self, record: Record, at: Index, slots: Slots, rows: Entries, applied: Applied) -> U8:
        """Finish or bury waiting messages that are not to be delivered any more."""
        outcomes = np.full(len(at), Outcome.STALE, np.uint8)
        waiting = (rows["state"] == State.WAITING) & (rows["first"] == record.first[at])
        over = np.zeros(len(at), np.bool_)
        if is_full(rows):
            over = waiting & (rows["expires"] > 0) & (rows["expires"] <= np.uint64(max(record.stamp, 0)))
        applied.refused = np.concatenate((applied.refused, keys_named(record)[at[waiting & ~over]]))
        if not over.any():
            return outcomes
        outcomes[over] = Outcome.DONE
        at, slots, rows = at[over], slots[over], pick(rows, over)
        self._stop_waiting(rows)
        if self.settings.current.expired == "dead":
            self._bury(record, slots, self._remarked(record, at, rows), applied)
        else:
            self._finish(slots, rows)
        return outcomes

    def _discard(self, record: Record, at: Index, slots: Slots, rows: Entries, applied: Applied) -> U8:
        """Let dead messages go."""
        dead, outcomes = _of_dead(record, at, rows)
        rows = pick(rows, dead)
        self._count_dead(rows, -1)
        self._finish(slots[dead], rows)
        return outcomes

    def _redrive(self, record: Record, at: Index, slots: Slots, rows: Entries, applied: Applied) -> U8:
        """Let dead messages wait again, as if they had never been tried."""
        dead, outcomes = _of_dead(record, at, rows)
        if dead.any() and (taken := self._take_back(rows, dead)) is not None:
            outcomes[taken] = Outcome.TAKEN
            dead &= ~taken
        if dead.any():
            rows, slots = pick(rows, dead), slots[dead]
            self._count_dead(rows, -1)
            rows["due"] = np.maximum(record.due[at[dead]], np.uint64(max(record.stamp, 0)))
            rows["version"] = record.sequence
            rows["expires"] *= rows["expires"] > rows["due"]  # else it would end where it begins
            for name in ("died_at", "attempt"):
                rows[name] = 0
            self._wait(record, slots, rows, rows["due"], applied)
        return outcomes

    def _take_back(self, rows: Entries, dead: Mask) -> Mask | None:
        """Let dead messages bear their keys again; return which cannot, others having taken theirs. None: all can."""
        keyed = keyed_of(rows)
        if keyed is None:
            return None
        taken = np.zeros(len(rows), np.bool_)
        if (ended := self.jobs.ended(rows)) is not None:
            keyed &= ~ended  # these go
        for at in np.flatnonzero(dead & keyed).tolist():
            row = rows[at : at + 1]
            [digest] = hashes_of(row["key_high"], row["key_low"])
            owner = int(row["first"][0]), int(keys_of(row)[0])
            name = self.names.get(digest)
            if name is None or name[:2] == owner:
                self.names.take(digest, owner)
            else:
                taken[at] = True
        return taken

    def _reveal(self, record: Record, at: Index, slots: Slots, rows: Entries, applied: Applied) -> U8:
        """Let messages that were hidden until their job was decided wait for their own instants."""
        job = self.jobs.by_key.get(record.job)
        outcomes = np.full(len(at), Outcome.STALE, np.uint8)
        if job is None or job.state != JobState.COMMITTED:
            return outcomes
        hidden = (rows["state"] == State.WAITING) & (rows["first"] == record.first[at])
        hidden &= (rows["job"] == job.number) & (rows["wait_at"] == job.until) & (rows["attempt"] == 0)
        hidden &= np.maximum(rows["due"], np.uint64(max(record.stamp, 0))) < job.until
        if hidden.any():
            outcomes[hidden] = Outcome.DONE
            slots, rows = slots[hidden], pick(rows, hidden)
            self._stop_waiting(rows)
            self._wait(record, slots, rows, rows["due"], applied)
        return outcomes


def _rounds(slots: Slots, chosen: Index) -> list[Index]:
    """Cut `chosen` into runs that name each message once, keeping the order per message."""
    if len(chosen) < 2 or len(set(slots[chosen].tolist())) == len(chosen):
        return [chosen] if len(chosen) else []
    rounds = []
    rest = chosen
    while len(rest):
        named = slots[rest]
        now = named == 0  # nobody's rows: all the same
        now[np.unique(named, return_index=True)[1]] = True
        rounds.append(rest[now])
        rest = rest[~now]
    return rounds


def _differs(record: Record, at: Index, rows: Entries, there: Mask) -> Mask:
    """Return which of the messages that are there have not the version that is expected of them."""
    if not len(record.expected):
        return there & False
    expected = record.expected[at]
    differs: Mask = there & (expected != 0) & (versions_of(rows) != expected)
    return differs


def _of_dead(record: Record, at: Index, rows: Entries) -> tuple[Mask, U8]:
    """Return which messages are dead and as they are expected to be, and the outcomes of all."""
    dead = (rows["state"] == State.DEAD) & (rows["first"] == record.first[at])
    outcomes = np.where(dead, Outcome.DONE, Outcome.NOT_FOUND).astype(np.uint8)
    changed = _differs(record, at, rows, dead)
    outcomes[changed] = Outcome.CHANGED
    return dead & ~changed, outcomes

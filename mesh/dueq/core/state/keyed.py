"""INSERTs with unique keys or idempotency keys: which rows take effect, and which answers the others get.

    the key names        refuse     keep     replace
    nothing              inserted   inserted inserted
    a waiting message    TAKEN      KEPT     inserted, and the message is cancelled
    a leased one         TAKEN      KEPT     LEASED
    a finished one       TAKEN      KEPT     TAKEN      (remembered for a while, see `names`)
    one of an open job   HIDDEN     HIDDEN   HIDDEN     (but for rows of the same job)
    a waiting one of an ended job   inserted, and the message is finished

With `retry` a message of the same due instant, size and CRC is the row's own: KEPT. Rows of one record take effect one
after the other, no matter to which requests they belong.

An idempotency key comes first. If a request with it was answered in the last `ONCE_MS`, the row gets that answer again
(KEPT), or has another digest (DIFFERS). Otherwise the row's own answer is kept, unless it is a refusal.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import numpy as np

from dueq.core.ports.entry import State
from dueq.core.ports.names import NO_HASH, Answered, Lasting, Owner, Remembered, hashes_of, pack_owners
from dueq.core.state.applied import PRESENT, Met
from dueq.core.state.entry_rows import Slots
from dueq.core.state.job_table import JobTable
from dueq.core.state.names import Names
from dueq.core.state.table import Table
from dueq.errors import invariant
from dueq.limits import ONCE_MS, WINDOW_MS_MAX
from dueq_codecs.records import JobState, OnDuplicate, Outcome, Record
from dueq_codecs.rules import first_instants

_CODES: Final = {
    OnDuplicate.NONE: Outcome.TAKEN,
    OnDuplicate.REFUSE: Outcome.TAKEN,
    OnDuplicate.KEEP: Outcome.KEPT,
    OnDuplicate.REPLACE: Outcome.TAKEN,
}


class _Bearer(NamedTuple):
    """The message that a key names."""

    first: int
    key: int
    due: int
    size: int
    crc: int
    state: State
    """ABSENT: it is finished, and remembered."""
    job: int


class Decided(NamedTuple):
    """The decision about the rows of an INSERT."""

    chosen: Slots | None
    """Rows that are inserted; None: all."""
    gone: list[int]
    """Slots of messages that lose their keys, and go."""
    met: Met | None
    """None: every row took effect."""


class Deciding(Protocol):
    """The state that `decide` reads."""

    table: Table
    names: Names
    jobs: JobTable


def decide(record: Record, chosen: Slots | None, job: int, live: Deciding) -> Decided:
    """Decide which rows of an INSERT with hashes of keys of either kind take effect, and give them their keys.

    Args:
        record: whose keys, and the messages that bear them, are in memory.
        chosen: rows of requests that take effect; None: all.
        job: number of the record's job; 0: none.
        live: the messages.
    """
    names = live.names
    firsts = first_instants(record.due, record.stamp, record.job_until)
    fresh = names.fresh.get(record.sequence)
    if chosen is None and fresh is not None and not fresh.touched and names.are_unknown(fresh.others):
        names.bear(fresh, record.sequence, firsts)
        if others := fresh.other_rows:
            at = np.array(others, np.uint64)
            names.take_all(fresh.others, pack_owners(firsts[at], at + np.uint64(record.sequence << 16)))
        return Decided(None, [], None)
    hashes = hashes_of(record.key_high, record.key_low) or [NO_HASH] * record.rows
    if chosen is None and not len(record.once_high) and names.are_free(hashes):
        owners = pack_owners(
            firsts, np.arange(len(hashes), dtype=np.uint64) + np.uint64(record.sequence << 16)
        )
        if NO_HASH in hashes:
            bearing = [at for at, digest in enumerate(hashes) if digest != NO_HASH]
            hashes, owners = [hashes[at] for at in bearing], [owners[at] for at in bearing]
        names.take_all(hashes, owners)
        return Decided(None, [], None)
    rows = list(range(len(hashes))) if chosen is None else chosen.tolist()
    return _Rows(record, job, live).decide(rows, hashes, firsts.tolist())


class _Rows:
    """The rows of one record, one by one."""

    def __init__(self, record: Record, job: int, live: Deciding) -> None:
        self._record, self._job, self._live = record, job, live
        self._begun = np.zeros(record.rows, np.bool_)
        self._gone: list[int] = []
        self._once = hashes_of(record.once_high, record.once_low) or [NO_HASH] * record.rows
        self._digests = record.once_digest.tolist()

    def decide(self, rows: list[int], hashes: list[bytes], firsts: list[int]) -> Decided:
        record, names = self._record, self._live.names
        outcomes = np.zeros(record.rows, np.uint8)
        present = np.zeros(record.rows, PRESENT)
        for at in rows:
            digest, once = hashes[at], self._once[at]
            if once != NO_HASH and (answered := names.get(once)) is not None:
                outcomes[at], present[at] = self._again(at, answered)
                continue
            if record.claim:
                self._answer(at, 0, 0, 0)
                continue
            if digest != NO_HASH:
                bearer = self._bearer(digest)
                outcome = self._meets(at, bearer) if bearer is not None else Outcome.DONE
                if outcome != Outcome.DONE:
                    outcomes[at] = outcome
                    if bearer is not None and outcome != Outcome.HIDDEN:
                        present[at] = bearer.first, bearer.key >> 16, bearer.key & 0xFFFF, bearer.due
                    if bearer is not None and outcome == Outcome.KEPT:
                        self._answer(at, bearer.first, bearer.key, bearer.due)
                    continue
                if bearer is not None:
                    self._ends(bearer)
                names.take(digest, (firsts[at], record.sequence << 16 | at))
            self._begun[at] = True
            self._answer(at, firsts[at], record.sequence << 16 | at, int(record.due[at]))
        met = Met(outcomes, present) if outcomes.any() else None
        chosen = None if self._begun.all() else np.flatnonzero(self._begun)
        return Decided(chosen, self._gone, met)

    def _again(self, at: int, name: Owner | Lasting) -> tuple[Outcome, tuple[int, int, int, int]]:
        """Return the outcome of a row whose idempotency key has come before."""
        if not isinstance(name, Answered) or name.digest != self._digests[at]:
            return Outcome.DIFFERS, (0, 0, 0, 0)
        return Outcome.KEPT, (name.first, name.key >> 16, name.key & 0xFFFF, name.due)

    def _answer(self, at: int, first: int, key: int, due: int) -> None:
        """Keep what a row is answered, if it has an idempotency key."""
        names, once = self._live.names, self._once[at]
        if once != NO_HASH:
            names.answer(once, Answered(first, key, due, self._digests[at], names.age_ms + ONCE_MS))

    def _bearer(self, digest: bytes) -> _Bearer | None:
        name = self._live.names.get(digest)
        if name is None:
            return None
        if isinstance(name, Answered):
            return _Bearer(name.first, name.key, name.due, 0, 0, State.ABSENT, 0)
        if isinstance(name, Remembered):
            return _Bearer(name.first, name.key, name.due, name.size, name.crc, State.ABSENT, 0)
        return self._owner(name)

    def _owner(self, owner: Owner) -> _Bearer:
        record, (first, key) = self._record, owner
        if key >> 16 == record.sequence:  # it comes with this record, and is not among the messages yet
            at = key & 0xFFFF
            due, size, crc = int(record.due[at]), int(record.size[at]), int(record.crc[at])
            return _Bearer(first, key, due, size, crc, State.WAITING, self._job)
        table = self._live.table
        slot = table.slot_of.get(key, 0)
        row = table.rows[slot]
        invariant(
            row["state"] in (State.WAITING, State.LEASED) and row["first"] == first,
            "a key names a message that does not live",
            uid=table.uid,
            sequence=record.sequence,
            key=key,
        )
        size, crc, job = int(row["size"]), int(row["crc"]), int(row["job"])
        return _Bearer(first, key, int(row["due"]), size, crc, State(row["state"]), job)

    def _meets(self, at: int, bearer: _Bearer) -> Outcome:
        """Return the outcome of a row whose key names this message."""
        record = self._record
        job = self._live.jobs.closed.get(bearer.job)
        if job is not None and bearer.job != self._job:
            if job.state == JobState.OPEN:
                return Outcome.HIDDEN
            if bearer.state == State.WAITING:
                return Outcome.DONE
        if record.retry and self._is_own(at, bearer):
            return Outcome.KEPT
        if record.on_duplicate == OnDuplicate.REPLACE and bearer.state == State.LEASED:
            return Outcome.LEASED
        if record.on_duplicate == OnDuplicate.REPLACE and bearer.state == State.WAITING:
            return Outcome.DONE
        return _CODES[record.on_duplicate]

    def _is_own(self, at: int, bearer: _Bearer) -> bool:
        """Whether a message is what an earlier attempt of this row has left."""
        record = self._record
        if bearer.size != int(record.size[at]) or bearer.crc != int(record.crc[at]):
            return False
        if not len(record.window):
            return bearer.due == int(record.due[at])
        asked = int(record.due[at]) - int(record.window[at])
        return asked <= bearer.due <= asked + WINDOW_MS_MAX  # the leader of then has chosen otherwise

    def _ends(self, bearer: _Bearer) -> None:
        """Let a message go whose key a row takes."""
        if bearer.key >> 16 == self._record.sequence:
            self._begun[bearer.key & 0xFFFF] = False
        elif bearer.state != State.ABSENT:
            self._gone.append(self._live.table.slot_of[bearer.key])

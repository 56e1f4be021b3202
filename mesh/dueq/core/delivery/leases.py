"""The leases of one led partition as its leader counts them: from the proposal of a LEASE record to the
record that ends it.

Columns by slot, a free list, and the slot of each key. A (slot, token) pair names a lease for good: a slot
that is used again has another token. `act_us` is the only timer: the instant at which the leader must end
the lease. One scan of that column finds all of them, so an extended lease, a pause or an ack costs nothing
to reschedule.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dueq.core.delivery.group_slots import GroupSlots
from dueq.core.ports.entry import FLAG_UPLOAD, Entries, keys_of
from dueq.core.state.entry_rows import EntryRows, Slots
from dueq_codecs.records import U64

I64 = npt.NDArray[np.int64]
Body = bytes | memoryview

NEVER_US: Final = 1 << 61
NOBODY: Final = 0
"""In place of a session's number."""
FEW: Final = 16
"""Up to this many values are looked at faster one by one than through numpy."""
_CAPACITY_MIN: Final = 64
NO_SLOTS: Final[Slots] = np.zeros(0, np.intp)
NO_SLOTS.flags.writeable = False


class Phase:
    """How far a lease is: plain integers, since an enum's are slow to look up and to compare with columns."""

    FREE = 0
    PROPOSED = 1
    """Its LEASE record is appended, not committed."""
    GRANTED = 2
    """Committed; its push has not left."""
    WITHHELD = 3
    """As GRANTED, but a cancel or move names its token: it must not be pushed."""
    PUSHED = 4
    """With its consumer, or inherited from an earlier leader and perhaps with its consumer."""
    AGAIN = 5
    """As PUSHED, but the consumer does not have it: to be pushed again under the same token."""
    RETURNED = 6
    """As PUSHED, but the consumer said goodbye: to be released at once."""
    ENDING = 7
    """A RELEASE or EXPIRE is appended."""


_GRANTED: Final = Phase.GRANTED
_PUSHED: Final = Phase.PUSHED


class _Cells(NamedTuple):
    """Columns whose items are Python's own numbers: of a single row, several times faster than through numpy."""

    phase: memoryview
    token: memoryview
    act_us: memoryview
    ready: memoryview
    staged: memoryview


class LeaseTable:
    """Leases by slot, slots by key.

    Attributes:
        slot_of: key -> slot of every lease that is not FREE.
        phase: Phase per slot.
        token: log sequence of the LEASE record; 0 when FREE.
        owner: number of the consumer's session.
        act_us: (mono) when the leader must end it: half-way while unpushed, its deadline once pushed.
        ready: 1 when the payload is at hand (or its chunks have gone ahead).
        bodies: inline payloads that wait for their push.
        to_renew: 1 while an older process of its consumer may have it, and it is to come under a new token.
        staged_bytes: bytes of inline payloads that are at hand or being read.
        high: slots from here on were never used.
        group_slots: counts the leases of each group; None: nobody asks.
    """

    def __init__(self) -> None:
        self.slot_of: dict[int, int] = {}
        self._entries = EntryRows()
        self.phase = np.zeros(0, np.uint8)
        self.token = np.zeros(0, np.uint64)
        self.owner = np.zeros(0, np.int64)
        self.act_us = np.zeros(0, np.int64)
        self.ready = np.zeros(0, np.uint8)
        self.staged = np.zeros(0, np.int64)
        self.to_renew = np.zeros(0, np.uint8)
        self.bodies: list[Body | None] = []
        self.staged_bytes = 0
        self.high = 0
        self.group_slots: GroupSlots | None = None
        self._free: list[int] = []
        self._grow(_CAPACITY_MIN)

    def __len__(self) -> int:
        return len(self.slot_of)

    @property
    def entry(self) -> Entries:
        """The leased entries by slot (the waiting ones, while PROPOSED)."""
        return self._entries.rows

    def _grow(self, capacity: int) -> None:
        old = len(self.phase)
        self._entries.resize(capacity)
        for name in ("phase", "token", "owner", "act_us", "ready", "staged", "to_renew"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate((column, np.zeros(capacity - old, column.dtype))))
        self.act_us[old:] = NEVER_US
        self.bodies += [None] * (capacity - old)
        self._cells = _Cells(
            self.phase.data, self.token.data, self.act_us.data, self.ready.data, self.staged.data
        )

    # -------------------------------------------------------------- rows

    def add(
        self, entries: Entries, owner: I64 | int, token: U64 | int, phase: int, act_us: I64 | int
    ) -> Slots:
        """Enter leases; their keys must not be there. Returns their slots."""
        count = len(entries)
        taken = self._free[-count:] if self._free else []
        del self._free[len(self._free) - len(taken) :]
        if len(taken) < count:
            fresh = count - len(taken)
            if self.high + fresh > len(self.phase):
                self._grow(max(2 * len(self.phase), self.high + fresh))
            taken += range(self.high, self.high + fresh)
            self.high += fresh
        slots = np.array(taken, np.intp)
        self._entries.put(slots, entries)
        self.phase[slots] = phase
        self.token[slots] = token
        self.owner[slots] = owner
        self.act_us[slots] = act_us
        self.to_renew[slots] = 0
        self.slot_of.update(zip(keys_of(entries).tolist(), taken, strict=True))
        if self.group_slots is not None:
            self.group_slots.begin(entries)
        return slots

    def find(self, keys: U64) -> Slots:
        """Return the slots of those keys that have a lease, in the order of the keys."""
        found = list(map(self.slot_of.get, keys.tolist(), repeat(-1)))
        if -1 in found:
            found = [slot for slot in found if slot >= 0]
        return np.array(found, np.intp)

    def token_of(self, key: int) -> int:
        """Return the token of a message's lease, proposed ones included; 0: it has none."""
        slot = self.slot_of.get(key)
        return int(self.token[slot]) if slot is not None else 0

    def rewrite(self, slots: Slots, entries: Entries) -> None:
        """Put the entries as they are now; each has the group that it had."""
        self._entries.put(slots, entries)

    def remove(self, slots: Slots, keys: Iterable[int]) -> None:
        """Forget leases; `keys` are those of the slots."""
        if self.group_slots is not None:
            self.group_slots.end(self.entry.take(slots))
        pop = self.slot_of.pop
        for key in keys:
            pop(key, None)
        self.unstage(slots)
        self.phase[slots] = Phase.FREE
        self.token[slots] = 0
        self.act_us[slots] = NEVER_US
        if self.slot_of:
            self._free += slots.tolist()
        else:
            self._free = []
            self.high = 0

    def same(self, slots: Slots, tokens: U64 | int) -> npt.NDArray[np.bool_]:
        """Return which slots still hold the lease of this token."""
        found: npt.NDArray[np.bool_] = self.token[slots] == tokens
        return found

    def of_owner(self, owner: int) -> Slots:
        """Return the slots of one session's leases."""
        if not self.slot_of:  # as in most of a topic's partitions, and each of them is asked
            return NO_SLOTS
        mine = (self.owner[: self.high] == owner) & (self.phase[: self.high] != Phase.FREE)
        return np.flatnonzero(mine)

    def unpushed(self) -> I64:
        """Return the owners of leases that are proposed or granted and were not pushed, one for each lease."""
        phase = self.phase[: self.high]
        return self.owner[: self.high][(phase >= Phase.PROPOSED) & (phase <= Phase.WITHHELD)]

    def coming(self) -> I64:
        """Return the owners of leases that a push is to bring, for the first time or again, one for each lease."""
        phase = self.phase[: self.high]
        first = (phase >= Phase.PROPOSED) & (phase <= Phase.WITHHELD)
        owners: I64 = self.owner[: self.high][first | (phase == Phase.AGAIN)]
        return owners

    def all_pushable(self, slots: list[int], tokens: list[int], now_us: int) -> bool:
        """Return whether all of these few leases are granted, in time, and have their payload at hand."""
        phase, token, act_us, ready, _ = self._cells
        for slot, own in zip(slots, tokens, strict=True):
            if phase[slot] != _GRANTED or token[slot] != own or act_us[slot] <= now_us or not ready[slot]:
                return False
        return True

    def push(self, slots: list[int], until_us: int) -> list[Body]:
        """Note that these few leases are pushed; returns their payloads."""
        phase, _, act_us, ready, staged = self._cells
        held, bodies = self.bodies, []
        for slot in slots:
            bodies.append(held[slot] or b"")
            held[slot] = None
            phase[slot], act_us[slot], ready[slot] = _PUSHED, until_us, 0
            self.staged_bytes -= staged[slot]
            staged[slot] = 0
        return bodies

    # -------------------------------------------------------------- timers

    def to_end(self, now_us: int) -> Slots:
        """Return the leases that the leader must end now."""
        return np.flatnonzero(self.act_us[: self.high] <= now_us)

    def next_act_us(self) -> int:
        """Return when the next one must be ended; NEVER_US if none."""
        return int(self.act_us[: self.high].min()) if self.high else NEVER_US

    def next_end_us(self) -> int:
        """Return when the next one of a pushed message ends; NEVER_US if none."""
        pushed = self.act_us[: self.high][self.phase[: self.high] == Phase.PUSHED]
        return int(pushed.min()) if len(pushed) else NEVER_US

    def shift(self, gap_us: int) -> None:
        """Move every timer: the process was paused."""
        timers = self.act_us[: self.high]
        timers[timers < NEVER_US] += gap_us

    # -------------------------------------------------------------- payloads

    def stage(self, slots: Slots, sizes: I64) -> None:
        """Count payload bytes that are being brought to memory."""
        self.staged[slots] = sizes
        self.staged_bytes += total(sizes)

    def put_bodies(self, slots: list[int], bodies: Iterable[Body | None]) -> None:
        """Lay down payloads that have come."""
        held = self.bodies
        for slot, body in zip(slots, bodies, strict=True):
            held[slot] = body

    def stay_pushed(self, slots: Slots) -> None:
        """Their consumer has them: payloads that were brought back to push them again are not wanted."""
        self.unstage(slots)
        self.phase[slots] = Phase.PUSHED
        self.to_renew[slots] = 0

    def unstage(self, slots: Slots) -> None:
        """Let payloads go: pushed, or not wanted any more."""
        if self.staged_bytes:
            self.staged_bytes -= total(self.staged[slots])
            self.staged[slots] = 0
        held = self.bodies
        for slot in slots.tolist():
            held[slot] = None
        self.ready[slots] = 0


def total(sizes: npt.NDArray[Any]) -> int:
    """Return the sum of a column of sizes."""
    return sum(sizes.tolist()) if len(sizes) <= FEW else int(sizes.sum(dtype=np.int64))


def inline_sizes(entries: Entries) -> I64:
    """Return the bytes of each entry's payload that travel inside a push; 0 for uploads."""
    sizes: I64 = entries["size"].astype(np.int64)
    if has_uploads(entries):
        sizes[entries["flags"] & FLAG_UPLOAD != 0] = 0
    return sizes


def upload_bytes(entries: Entries) -> int:
    """Return the bytes of payload that travel in chunks."""
    return total(entries["size"]) - total(inline_sizes(entries)) if has_uploads(entries) else 0


def has_uploads(entries: Entries) -> bool:
    """Return whether any payload travels in chunks."""
    flags = entries["flags"]
    if len(flags) <= FEW:
        return any(flag & FLAG_UPLOAD for flag in flags.tolist())
    return bool((flags & FLAG_UPLOAD).any())

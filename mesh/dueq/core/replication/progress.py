"""One follower of one partition, as its leader sees it: a state machine with etcd/raft's three states.

    PROBE      nothing is known of what this life of it holds: one append at a time, each answered or repeated
    REPLICATE  its log equals ours up to `match`: appends follow one another, up to a window
    SNAPSHOT   it lacks records that our log no longer holds: offers of a snapshot, and no appends

    PROBE ──► REPLICATE               the first ack
    PROBE, REPLICATE ──► SNAPSHOT     the record that comes next was trimmed
    SNAPSHOT ──► REPLICATE, PROBE     an ack, or an answer, after which the log holds what comes next
    any ──► PROBE                     a new life; it says that it is being filled; a snapshot was read out for it

A follower that is being filled is in PROBE: its answers to probes tell that an offer was lost.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from dueq import limits
from dueq.errors import invariant
from dueq.instant import Now

NEVER_US: Final = -(1 << 62)
"""(mono) Before anything that has happened."""


class State(Enum):
    """A leader's knowledge of a follower, which decides what is sent."""

    PROBE = "probe"
    """Invariant: `match` is -1; `next` stays where it is when something is sent."""
    REPLICATE = "replicate"
    """Invariant: 0 ≤ `match` < `next`, and the log held record `next` when the state began."""
    SNAPSHOT = "snapshot"
    """Invariant: `match` < `next`, and `next` is before the log's start, which only grows."""


class Progress:
    """One follower as its leader sees it.

    Attributes:
        state: see `State`.
        next: the next sequence to send.
        match: synced and verified by this life of the follower in this epoch; -1: not known yet.
        incarnation, store_id: the life that `match` speaks of.
        told_commit: the commit position last sent.
        assured_commit: the one that is repeated until the follower has answered.
        moved_at_us: (mono) when it last made progress, or was last probed.
        best, best_store: the most that this disk had acked before its log counted as unknown.
        untrusted: it holds less than it must, or says that it has nothing: it must leave the ISR, and does not come
            back before it holds that much again.
        reading: a read of old records for it is under way.
        offered_at_us: (mono) when a snapshot was last offered.
        confirmed_at_us: (mono) when the latest of our frames left that an ack of this life and epoch has echoed.
        asked_at_us: (mono) when it was last asked for such an ack.
    """

    __slots__ = (
        "asked_at_us", "assured_commit", "best", "best_store", "confirmed_at_us", "incarnation", "match",
        "moved_at_us", "next", "offered_at_us", "reading", "state", "store_id", "told_commit", "untrusted",
    )  # fmt: skip

    def __init__(self, next_sequence: int) -> None:
        self.state = State.PROBE
        self.next = next_sequence
        self.match = -1
        self.incarnation = 0
        self.store_id = ""
        self.told_commit = self.assured_commit = -1
        self.moved_at_us: int | None = None
        self.best = -1
        self.best_store = ""
        self.untrusted = False
        self.reading = False
        self.offered_at_us: int | None = None
        self.confirmed_at_us = self.asked_at_us = NEVER_US

    # -------------------------------------------------------------- transitions

    def _become(self, state: State, log_start: int) -> None:
        """Enter a state; its invariant holds from here on."""
        match, following = self.match, self.next
        if state is State.PROBE:
            sound = match == -1
        elif state is State.REPLICATE:
            sound = 0 <= match < following and following >= log_start
        else:
            sound = match < following < log_start
        invariant(
            sound, "a follower's state fits what is known of it",
            state=state.value, was=self.state.value, match=match, next=following, start=log_start,
        )  # fmt: skip
        self.state = state

    def new_life(self, incarnation: int, store_id: str, log_start: int) -> None:
        """The follower has started again: its log must be verified again."""
        self._remember()
        if store_id != self.best_store:
            self.best, self.best_store = -1, store_id
        self.incarnation, self.store_id = incarnation, store_id
        self.match = self.told_commit = self.assured_commit = -1
        self.moved_at_us = None
        self.reading = False
        self.confirmed_at_us = self.asked_at_us = NEVER_US
        self._become(State.PROBE, log_start)

    def _remember(self) -> None:
        """What it has acked so far is not known of it any more, but of its disk."""
        before = self.best if self.best_store == self.store_id else -1
        self.best, self.best_store = max(before, self.match), self.store_id

    def acked(self, sequence: int, log_start: int, now: Now) -> None:
        """It holds more than was known, up to `sequence`."""
        self.match = sequence
        self.moved_at_us = now.mono_us
        self.next = max(self.next, sequence + 1)
        if self.state is not State.REPLICATE:
            self._begin(log_start)

    def parted(self, previous: int, log_start: int) -> None:
        """Its log and ours are the same up to `previous` at most: go on from there."""
        self.next = max(previous, self.match, 0) + 1
        self.moved_at_us = None
        self._begin(log_start)

    def _begin(self, log_start: int) -> None:
        """Send from `next` on, in the way that what is known of the follower allows."""
        if self.next < log_start:
            self._become(State.SNAPSHOT, log_start)
        else:
            self._become(State.PROBE if self.match < 0 else State.REPLICATE, log_start)

    def wiped(self, log_start: int) -> None:
        """It says that it is being filled, and holds nothing."""
        self._remember()
        self.match = -1
        self._become(State.PROBE, log_start)

    def installed(self, applied: int, log_start: int) -> None:
        """A snapshot of record `applied` was read out for it: it goes on from there."""
        self.next, self.match = applied + 1, -1
        self.moved_at_us = self.offered_at_us = None
        self._become(State.PROBE, log_start)

    def trimmed(self, log_start: int) -> bool:
        """Whether the log no longer holds what comes next; nothing more is appended to it then."""
        if self.next >= log_start:
            return False
        if self.state is not State.SNAPSHOT:
            self._become(State.SNAPSHOT, log_start)
        return True

    # -------------------------------------------------------------- sending

    def sent(self, count: int, commit: int, now: Now) -> None:
        """Records were sent from `next` on, and the commit position with them."""
        if self.state is State.PROBE or self.match >= self.next - 1:
            self.moved_at_us = now.mono_us
        if self.state is State.REPLICATE:
            # An unanswered probe is repeated as it is. Otherwise probing would run ahead of a silent follower, beyond
            # the window.
            self.next += count
        self.told_commit = commit

    def resend(self, now: Now) -> None:
        """Send again what has not been acked for a while."""
        if self.state is State.REPLICATE and self.next - 1 > self.match and not self.waits(now):
            self.next = self.match + 1
            self.moved_at_us = now.mono_us

    def waits(self, now: Now) -> bool:
        """Whether what was sent may still be answered: do not repeat it yet."""
        return self.moved_at_us is not None and now.mono_us - self.moved_at_us < limits.RESEND_MS * 1000

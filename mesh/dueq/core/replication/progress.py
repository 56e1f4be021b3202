"""One follower of one partition, as its leader sees it."""

from __future__ import annotations

from typing import Final

from dueq import limits
from dueq.instant import Now

NEVER_US: Final = -(1 << 62)
"""(mono) Before anything that has happened."""


class Progress:
    """One follower as its leader sees it.

    Attributes:
        next: the next sequence to send.
        match: synced and verified by this life of the follower in this epoch; -1: not known yet.
        incarnation, store_id: the life that `match` speaks of.
        told_commit: the commit position last sent.
        assured_commit: the one that is repeated until the follower has answered.
        moved_at_us: (mono) when it last made progress, or was last probed.
        best, best_store: the most that earlier lives with this disk had acked.
        untrusted: it holds less than it must, or says that it has nothing: it must leave the ISR.
        reading: a read of old records for it is under way.
        offered_at_us: (mono) when a snapshot was last offered.
        confirmed_at_us: (mono) when the latest of our frames left that an ack of this life and epoch has echoed.
        asked_at_us: (mono) when it was last asked for such an ack.
    """

    __slots__ = (
        "asked_at_us", "assured_commit", "best", "best_store", "confirmed_at_us", "incarnation", "match",
        "moved_at_us", "next", "offered_at_us", "reading", "store_id", "told_commit", "untrusted",
    )  # fmt: skip

    def __init__(self, next_sequence: int) -> None:
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

    def new_life(self, incarnation: int, store_id: str) -> None:
        """The follower has started anew: what it holds must be verified again."""
        if store_id == self.store_id:
            self.best, self.best_store = max(self.best, self.match), store_id
        else:
            self.best, self.best_store = -1, store_id
        self.incarnation, self.store_id = incarnation, store_id
        self.match = self.told_commit = self.assured_commit = -1
        self.moved_at_us = None
        self.reading = False
        self.confirmed_at_us = self.asked_at_us = NEVER_US

    def waits(self, now: Now) -> bool:
        """Whether what was sent may still be answered: do not repeat it yet."""
        return self.moved_at_us is not None and now.mono_us - self.moved_at_us < limits.RESEND_MS * 1000

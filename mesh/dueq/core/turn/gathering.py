"""Patient acks, for which no caller waits: they wait a moment for a record that is made anyway.

Every record costs each replica a sync and several turns, however small it is. So the acks of all partitions that
this broker leads leave in one turn: with a LEASE, an INSERT or an ack for which a caller waits, or when the first of
them has waited for `limits.ACK_GATHER_MS`.
"""

from __future__ import annotations

from dueq import limits
from dueq.instant import Now


class Gathering:
    """Partitions whose queues hold nothing but patient acks.

    Attributes:
        over: a record is being made in this turn, so nothing is won by waiting.
        until_us: (mono) when they leave at the latest; None: there are none.
    """

    def __init__(self) -> None:
        self._uids: dict[int, None] = {}
        self._rows = 0
        self.over = False
        self.until_us: int | None = None

    def __contains__(self, uid: int) -> bool:
        return uid in self._uids

    def wait(self, uid: int, rows: int, now: Now) -> None:
        """A patient ack joins the queue of a partition that holds nothing else."""
        self._uids[uid] = None
        self._rows += rows
        if self.until_us is None:
            self.until_us = now.mono_us + limits.ACK_GATHER_MS * 1000
        if self._rows > limits.RECORD_ROWS_MAX:
            self.over = True

    def end(self, uid: int = 0) -> bool:
        """Leave in this turn, as a record is being made (by `uid`, at once), or what the acks end is wanted.

        Returns:
            Whether acks of `uid` have waited until now.
        """
        self.over = True
        return self.leave(uid)

    def leave(self, uid: int) -> bool:
        """This partition's acks wait no more; returns whether some did."""
        waited = uid in self._uids
        self._uids.pop(uid, None)
        return waited

    def take(self, now: Now) -> list[int]:
        """Return whose acks leave in this turn, once it is known what else is done in it."""
        over, self.over = self.over, False
        if not over and (self.until_us is None or now.mono_us < self.until_us):
            return []
        taken = list(self._uids)
        self._uids.clear()
        self._rows, self.until_us = 0, None
        return taken

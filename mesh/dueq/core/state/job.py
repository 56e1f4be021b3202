"""One job, as far as a partition knows, and its row on the disk."""

from __future__ import annotations

import struct
from typing import Final

from dueq.errors import UnknownVersion
from dueq_codecs.records import JobState

_ROW: Final = struct.Struct("<BBBIQQQQQ")
"""version, state, cleared, number, until, stamp, look at, waiting, leased."""
_ROW_VERSION: Final = 1
_WITH_DEAD: Final = struct.Struct("<BBBIQQQQQQ")
"""The same, and how many are dead."""
_WITH_DEAD_VERSION: Final = 2

_ENDED: Final = frozenset((JobState.ABORTED, JobState.CANCELLED))


class Job:
    """One job, as far as this partition knows.

    Attributes:
        key: its 16 bytes.
        number: in this partition.
        state: the decision so far.
        until: the instant (Unix ms) by which it must be committed; 0: it was never hidden.
        stamp: of the last record about it, Unix ms.
        look_at_ms: age of the partition at which to look whether the job may be forgotten.
        waiting, leased, dead: messages of it that are left.
        saved: it has a row on disk.
    """

    __slots__ = (
        "cleared_flag", "dead", "key", "leased", "look_at_ms", "number", "saved", "stamp", "state", "until", "waiting",
    )  # fmt: skip

    def __init__(self, key: bytes, number: int, state: JobState, until: int) -> None:
        self.key, self.number, self.state, self.until = key, number, state, until
        self.stamp = self.look_at_ms = self.waiting = self.leased = self.dead = 0
        self.cleared_flag = self.saved = False

    @property
    def messages(self) -> int:
        """Messages that are left."""
        return self.waiting + self.leased + self.dead

    @property
    def ended(self) -> bool:
        """Whether its messages are not to be delivered any more."""
        return self.state in _ENDED

    @property
    def cleared(self) -> bool:
        """Whether the decision is worked off: everything is revealed, or withdrawn."""
        if self.state == JobState.COMMITTED:
            return self.cleared_flag or not self.until or not self.waiting
        return self.ended and not self.to_withdraw

    @property
    def to_withdraw(self) -> int:
        """Messages that are to go when it is aborted or cancelled."""
        return self.waiting + self.dead

    def pack(self) -> bytes:
        """Return the job's row."""
        values = (
            self.state, self.cleared_flag, self.number, self.until, self.stamp, self.look_at_ms, self.waiting,
            self.leased,
        )  # fmt: skip
        if self.dead:
            return _WITH_DEAD.pack(_WITH_DEAD_VERSION, *values, self.dead)
        return _ROW.pack(_ROW_VERSION, *values)

    @classmethod
    def unpack(cls, key: bytes, value: bytes) -> Job:
        """Read what `pack` wrote.

        Raises:
            UnknownVersion: a newer build wrote it.
        """
        if value[0] not in (_ROW_VERSION, _WITH_DEAD_VERSION):
            raise UnknownVersion(f"a job's row of version {value[0]}; this build knows {_WITH_DEAD_VERSION}")
        _, state, cleared, number, until, stamp, look_at_ms, waiting, leased = _ROW.unpack_from(value)
        job = cls(key, number, JobState(state), until)
        job.stamp, job.look_at_ms, job.waiting, job.leased = stamp, look_at_ms, waiting, leased
        if value[0] == _WITH_DEAD_VERSION:
            job.dead = _WITH_DEAD.unpack(value)[-1]
        job.cleared_flag, job.saved = bool(cleared), True
        return job

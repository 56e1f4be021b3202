"""The small fixed part of a partition's state, which every checkpoint writes whole."""

from __future__ import annotations

import struct
from typing import NamedTuple

from dueq.errors import UnknownVersion

_SUMMARY = struct.Struct("<BQQQQQ")
_SUMMARY_VERSION = 3
"""The version for a partition of level 1: a build that knows no levels can read it."""
_WITH_LEVEL = struct.Struct("<BQQQQQHQQ")
_WITH_LEVEL_VERSION = 4


class Summary(NamedTuple):
    """The small fixed part of the state."""

    stamp: int = 0
    """Of the last applied record."""
    scheduled: int = 0
    far: int = 0
    """Messages in the forecast's open-ended bucket."""
    age_ms: int = 0
    """Of the partition (see `dedup`)."""
    jobs_given: int = 0
    """Numbers of jobs that were given out (see `job_table`)."""
    level: int = 1
    """The feature level that the partition has reached."""
    dead: int = 0
    """Messages that are dead."""
    names: int = 0
    """Rows of unique keys on the disk."""

    def pack(self) -> bytes:
        """Return the summary's bytes."""
        if self.level == 1:
            return _SUMMARY.pack(_SUMMARY_VERSION, *self[:5])
        return _WITH_LEVEL.pack(_WITH_LEVEL_VERSION, *self)

    @classmethod
    def unpack(cls, value: bytes) -> Summary:
        """Read what `pack` wrote; nothing is the summary of an empty partition.

        Raises:
            UnknownVersion: a newer build wrote it.
        """
        if not value:
            return cls()
        if value[0] == _SUMMARY_VERSION:
            return cls(*_SUMMARY.unpack(value)[1:])
        if value[0] == _WITH_LEVEL_VERSION:
            return cls(*_WITH_LEVEL.unpack(value.ljust(_WITH_LEVEL.size, b"\0"))[1:])
        raise UnknownVersion(
            f"a summary of version {value[0]}; this build knows {_SUMMARY_VERSION} and {_WITH_LEVEL_VERSION}"
        )

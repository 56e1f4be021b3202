"""The small fixed part of a partition's state, which every checkpoint writes whole."""

from __future__ import annotations

import struct
from typing import NamedTuple

from dueq.errors import UnknownVersion

_SUMMARY = struct.Struct("<BQQQQQ")
_SUMMARY_VERSION = 3


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

    def pack(self) -> bytes:
        """Return the summary's bytes."""
        return _SUMMARY.pack(_SUMMARY_VERSION, *self)

    @classmethod
    def unpack(cls, value: bytes) -> Summary:
        """Read what `pack` wrote; nothing is the summary of an empty partition.

        Raises:
            UnknownVersion: a newer build wrote it.
        """
        if not value:
            return cls()
        if value[0] != _SUMMARY_VERSION:
            raise UnknownVersion(f"a summary of version {value[0]}; this build knows {_SUMMARY_VERSION}")
        return cls(*_SUMMARY.unpack(value)[1:])

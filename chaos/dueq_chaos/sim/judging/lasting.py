"""A detached lease lasts as long as it says: nobody's silence, goodbye or death ends it sooner."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from dueq_codecs.records import Record, RecordKind

_SLACK_US = 3_000_000
"""How much longer than here it may seem to a leader: commits are seen late, and clocks drift."""


class _Lease(NamedTuple):
    """A detached lease."""

    token: int
    first: int
    """Of its message: who names another instant means none."""
    until_us: int
    """Its end by true time, counted from when its record was seen to be committed."""
    until_ms: float
    """Its end by the leader's clock: an extension counts from when it was asked for, however late it is committed."""


_NO_LEASE = _Lease(0, 0, 0, 0)


class Lasting:
    """Until when detached leases last."""

    def __init__(self) -> None:
        self._leases: dict[tuple[int, int], _Lease] = {}  # by partition and message
        self._last: dict[int, int] = {}

    def cut_short(self, record: Record, now_us: int) -> str:
        """Take note of a committed record, shown by any replica; return what is wrong with it, "" if nothing is."""
        if record.sequence <= self._last.get(record.uid, 0):
            return ""
        self._last[record.uid] = record.sequence
        keys = ((record.target_sequence << np.uint64(16)) | record.target_row).tolist()
        if record.kind == RecordKind.LEASE:
            for row, key in enumerate(keys):
                consumer = int(record.consumer[row])
                self._leases.pop((record.uid, key), None)
                if len(record.detached) and record.detached[consumer]:
                    until_us = now_us + int(record.lease_ms[consumer]) * 1000
                    self._leases[record.uid, key] = _Lease(
                        record.sequence, int(record.first[row]), until_us, inf
                    )
        elif record.kind == RecordKind.EXTEND:
            for row, key in enumerate(keys):
                named = int(record.token[row]), int(record.first[row])
                if named == self._leases.get((record.uid, key), _NO_LEASE)[:2]:
                    amount_ms = int(record.amount_ms[row])
                    until = now_us + amount_ms * 1000, record.stamp + amount_ms
                    self._leases[record.uid, key] = _Lease(*named, *until)
        elif record.kind == RecordKind.EXPIRE:
            for row, key in enumerate(keys):
                token, _, until_us, until_ms = self._leases.pop((record.uid, key), _NO_LEASE)
                is_early = now_us < until_us - _SLACK_US and record.stamp < until_ms - _SLACK_US // 1000
                if token == int(record.token[row]) and is_early:
                    early_ms = (until_us - now_us) // 1000
                    return f"the detached lease {token} of message {key} was ended {early_ms} ms before its length"
        return ""

"""A detached lease lasts as long as it says: nobody's silence, goodbye or death ends it sooner."""

from __future__ import annotations

import numpy as np

from dueq_codecs.records import Record, RecordKind

_SLACK_US = 3_000_000
"""How much longer than here it may seem to a leader: commits are seen late, and clocks drift."""


class Lasting:
    """Until when detached leases last, by true time."""

    def __init__(self) -> None:
        self._until: dict[tuple[int, int], tuple[int, int]] = {}
        """By partition and message: token, and the instant."""
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
                self._until.pop((record.uid, key), None)
                if len(record.detached) and record.detached[consumer]:
                    until_us = now_us + int(record.lease_ms[consumer]) * 1000
                    self._until[record.uid, key] = record.sequence, until_us
        elif record.kind == RecordKind.EXTEND:
            for row, key in enumerate(keys):
                token, _ = self._until.get((record.uid, key), (0, 0))
                if token and token == int(record.token[row]):
                    until_us = now_us + int(record.amount_ms[row]) * 1000
                    self._until[record.uid, key] = token, until_us
        elif record.kind == RecordKind.EXPIRE:
            for row, key in enumerate(keys):
                token, until_us = self._until.pop((record.uid, key), (0, 0))
                if token == int(record.token[row]) and now_us < until_us - _SLACK_US:
                    early_ms = (until_us - now_us) // 1000
                    return f"the detached lease {token} of message {key} was ended {early_ms} ms before its length"
        return ""

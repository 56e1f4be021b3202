"""Payloads of messages that have ended: counted by block, listed when the last of a block ends, and deleted later.

A payload goes only when the log no longer holds its record: until then a follower may have to be sent it. So there are
two occasions: the log was trimmed, or a checkpoint has listed payloads of records that were trimmed before. A sweep
follows the commit of either, in the same call. It deletes payload and listing in one commit, whose payload batch is
synced first: after a crash in between the deletion is repeated.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import numpy as np

from dueq.core.ports.entry import FLAG_UPLOAD, Entries
from dueq.storage.ordered import layout
from dueq.storage.ordered.batch import Batch
from dueq.storage.ordered.engine import Engine

SWEEP_MAX: Final = 16_384
"""Blocks and uploads of one partition that one commit deletes; more go with the next commits."""
SWEEP_BYTES: Final = 4 << 20
"""Bytes of uploads that it deletes: LevelDB reads a chunk to get to the next one."""


class Garbage:
    """Payloads of ended messages, in all partitions of a store.

    Attributes:
        due: uids of partitions whose log may be past something that is listed.
    """

    def __init__(self, timeline: Engine, payload: Engine) -> None:
        self._timeline, self._payload = timeline, payload
        self._counters: dict[bytes, int] = {}  # as ordered and not written yet
        self._uploads: tuple[int, set[int]] | None = None  # of one partition, as listed now
        self.due: dict[int, None] = {}

    def written(self) -> None:
        """Everything that was ordered is in the databases."""
        self._counters.clear()

    # -------------------------------------------------------------- listing

    def ended(self, uid: int, finished: Entries, log_start: int, batch: Batch) -> None:
        """List the blocks and uploads of which nothing is left when these messages have ended.

        Args:
            uid: the partition.
            finished: the messages.
            log_start: the first record that its log holds.
            batch: takes the rows of `timeline/`.
        """
        if not len(finished):
            return
        if int(finished["sequence"].min()) < log_start:
            self.due[uid] = None
        for upload, sequence in uploads_of(finished):
            batch.append((layout.named_key(uid, upload), None))
            batch.append((layout.garbage_key(uid, sequence, layout.chunk_key(uid, upload, 0)[:-2]), b""))
        inline = finished[(finished["flags"] & FLAG_UPLOAD) == 0]
        if not len(inline):
            return
        block = (inline["sequence"] << np.uint64(16)) | (inline["place"] >> np.uint64(32))
        blocks, at, counts = np.unique(block, return_index=True, return_counts=True)
        rows = inline["block_rows"][at]
        for number, ended, held in zip(blocks.tolist(), counts.tolist(), rows.tolist(), strict=True):
            self._count_down(uid, number >> 16, number & 0xFFFF, ended, held, batch)

    def _count_down(
        self, uid: int, sequence: int, block_row: int, ended: int, rows: int, batch: Batch
    ) -> None:
        key = layout.counter_key(uid, sequence, block_row)
        known = None
        if ended < rows:
            known = self._counters.get(key)
            if known is None and (stored := self._timeline.get(key)) is not None:
                known = int.from_bytes(stored, "big")
        left = (rows if known is None else known) - ended
        if left > 0:
            self._counters[key] = left
            batch.append((key, left.to_bytes(2, "big")))
            return
        if known is not None:
            batch.append((key, None))
        garbage = layout.garbage_key(uid, sequence, layout.block_key(uid, sequence, block_row))
        batch.append((garbage, b""))

    def lists(self, uid: int, upload: int) -> bool:
        """Whether a sweep will delete this upload. What is listed is read once until `changes`."""
        if self._uploads is None or self._uploads[0] != uid:
            first = layout.head(uid, b"g")
            listed = (key[9:] for key in self._timeline.keys(first, layout.after(first)))
            self._uploads = uid, {int.from_bytes(key[1:9], "big") for key in listed if key[:1] == b"u"}
        return upload in self._uploads[1]

    def changes(self) -> None:
        """Something is written that may list more."""
        self._uploads = None

    # -------------------------------------------------------------- sweeping

    def sweep(self, uid: int, log_start: int, timeline_batch: Batch, payload_batch: Batch) -> None:
        """Order the deletion of the listed payloads of records that the log no longer holds."""
        first = layout.head(uid, b"g")
        listed = self._timeline.keys(first, first + log_start.to_bytes(5, "big"))
        swept, weight = 0, SWEEP_BYTES
        for key in islice(listed, SWEEP_MAX):
            payload_key = key[:3] + key[9:]
            if payload_key[3:4] == b"u":
                weight = self._sweep_upload(payload_key, weight, payload_batch)
                if weight <= 0:
                    return  # of this upload, too, something may be left
            else:
                payload_batch.append((payload_key, None))
            timeline_batch.append((key, None))
            swept += 1
        if swept < SWEEP_MAX:
            del self.due[uid]

    def _sweep_upload(self, prefix: bytes, weight: int, batch: Batch) -> int:
        """Order the deletion of an upload's chunks, of about so many bytes; returns what is left of these."""
        for chunk, value in self._payload.scan(prefix, layout.after(prefix)):
            batch.append((chunk, None))
            weight -= len(value)
            if weight <= 0:
                break
        return weight


def uploads_of(entries: Entries) -> list[tuple[int, int]]:
    """Return (upload, sequence) of those entries whose payload is an upload."""
    if not len(entries):
        return []
    named = entries[(entries["flags"] & FLAG_UPLOAD) != 0]
    return list(zip(named["place"].tolist(), named["sequence"].tolist(), strict=True))

"""A way through a partition's waiting messages that stops at those that match a filter: by pages, in bounded memory.

Where the filter has a key prefix, the keys of what matches otherwise are read from the disk, about 1 MiB of payloads at
a time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dueq.core.partition.care import CaredPartition
from dueq.core.partition.index_walk import IndexWalk
from dueq.core.ports.entry import FLAG_UPLOAD, Entries, State, meta_of
from dueq.core.ports.persistence import ChunkRead, IndexScanned, PayloadsRead, ReadChunk, ReadPayloads
from dueq.core.state.matching import RowFilter, matching
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq.limits import BROWSE_BYTES_MAX

Then = Callable[[Entries, Now], None]


class FilteredWalk:
    """A position in the index, and what to look for.

    Args:
        wanted: which messages; those of a job that is not committed are never among them.
        before: messages that this record or a later one has inserted or changed are not among them.

    Attributes:
        looked: messages that were looked at.
    """

    def __init__(self, ctx: Context, partition: CaredPartition, wanted: RowFilter, before: int) -> None:
        self._ctx, self._partition = ctx, partition
        self._wanted, self._before = wanted, before
        timeline = partition.timeline
        dead = wanted.state == State.DEAD
        # Nothing waits for an instant before its due.
        start_ms = 0 if dead else max(timeline.low_water, wanted.due_from)
        self.walk = IndexWalk(partition.uid, timeline.order.class_bytes, start_ms, dead=dead)
        self.looked = 0

    @property
    def ended(self) -> bool:
        """Whether nothing is left to read."""
        return self.walk.ended

    def read(self, then: Then) -> None:
        """Read the next page; `then` is called with what matches, maybe nothing."""

        def page_read(answer: object, now: Now) -> None:
            assert isinstance(answer, IndexScanned)
            entries = self.walk.take(answer)
            self.looked += len(entries)
            self.choose(entries, then, now)

        self._ctx.read(self.walk.request, page_read)

    def choose(self, entries: Entries, then: Then, now: Now) -> None:
        """Call `then` with those of some entries that match."""
        timeline, wanted = self._partition.timeline, self._wanted
        found = matching(entries, wanted.state, self._before)
        found &= wanted.mask(entries, timeline.jobs, timeline.groups)
        barred = timeline.jobs.barred(entries)
        if barred is not None:
            found &= ~barred
        rows = entries.take(np.flatnonzero(found))
        if not wanted.key_prefix:
            then(rows, now)
            return
        keyed = np.flatnonzero(meta_of(rows["flags"]) != 0)
        self._by_key(rows, keyed.tolist(), [], then, now)

    def _by_key(self, rows: Entries, left: list[int], chosen: list[int], then: Then, now: Now) -> None:
        """Read the keys of the rows `left`, some at a time."""
        if not left:
            then(rows.take(np.array(chosen, np.intp)), now)
            return
        uid, head = self._partition.uid, rows[left[0]]
        if int(head["flags"]) & FLAG_UPLOAD:

            def chunk_read(answer: object, then_: Now) -> None:
                assert isinstance(answer, ChunkRead)
                self._keep(rows, left[:1], [answer.data], chosen)
                self._by_key(rows, left[1:], chosen, then, then_)

            self._ctx.read(lambda token: ReadChunk(token, uid, int(head["place"]), 0), chunk_read)
            return
        count = self._bounded(rows, left)

        def read(answer: object, then_: Now) -> None:
            assert isinstance(answer, PayloadsRead)
            self._keep(rows, left[:count], answer.payloads, chosen)
            self._by_key(rows, left[count:], chosen, then, then_)

        self._ctx.read(lambda token: ReadPayloads(token, uid, rows.take(left[:count])), read)

    @staticmethod
    def _bounded(rows: Entries, left: list[int]) -> int:
        """Return how many of these rows may be read at once: short ones, of about 1 MiB."""
        size = 0
        for count, row in enumerate(left):
            size += int(rows["size"][row])
            if count and (size > BROWSE_BYTES_MAX or int(rows["flags"][row]) & FLAG_UPLOAD):
                return count
        return len(left)

    def _keep(self, rows: Entries, read: list[int], bodies: list[bytes | None], chosen: list[int]) -> None:
        """Choose those whose key begins as it should; what cannot be read is none of them."""
        prefix = self._wanted.key_prefix
        for row, body in zip(read, bodies, strict=True):
            if body and body[0] >= len(prefix) and body[1 : 1 + len(prefix)] == prefix:
                chosen.append(row)

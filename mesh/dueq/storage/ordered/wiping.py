"""Partitions whose rows are being deleted, some with each commit: dropped ones, and replicas that begin anew.

LevelDB deletes row by row. A million rows take 0.8 s of processor time, and in one commit no other partition of the
broker could commit meanwhile. So a wipe begins with one synced write after which the rows no longer count: a dropped
partition has lost its row P, and a replica that begins anew bears the mark `installing`. Every later commit deletes a
bounded number of rows. So does a commit without writes, with which the writer goes on while there is nothing else to
do.

A crash loses no more than the place that a wipe has reached. The next opening begins anew with partitions without a
row P. A replica with the mark is wiped again when a snapshot comes.

A wipe knows by their keys the rows that have come since and stay. Only a few may come that way. Where all rows of a
snapshot come, or a partition of the same uid is created, the rest of the wipe is done first, at once. Followers wait
for the end of a wipe before they ask for a snapshot (`core/replication/installing.py`), and a partition that is created
finds no more than the payloads of one commit that a crash has cut short.
"""

from __future__ import annotations

from collections.abc import Iterable

from dueq.limits import WIPE_BYTES, WIPE_ROWS
from dueq.storage.ordered import layout
from dueq.storage.ordered.batch import Batch
from dueq.storage.ordered.engine import Engine


class _Wipe:
    """One partition: the rows that stay, and the place that the wipe has reached.

    Attributes:
        ended: none of the old rows is left.
    """

    __slots__ = ("_at", "_engines", "_range", "ended", "kept")

    def __init__(self, engines: list[Engine], uid: int, kept: Iterable[bytes]) -> None:
        self._engines, self._range = engines, layout.whole(uid)
        self._at = self._range[0]
        self.kept = set(kept)
        self.ended = False

    def step(self, batches: dict[Engine, Batch], rows: int, weight: int) -> tuple[int, int]:
        """Order the deletion of up to so many rows, of about so many bytes; returns what is left of both."""
        while self._engines:
            engine = self._engines[0]
            for key, value in engine.scan(self._at, self._range[1], limit=rows):
                if key not in self.kept:
                    batches[engine].append((key, None))
                self._at = key + b"\0"
                rows -= 1
                weight -= len(key) + len(value)
                if weight <= 0:
                    break
            if rows <= 0 or weight <= 0:
                return 0, 0
            self._engines = self._engines[1:]
            self._at = self._range[0]
        self.ended = True
        return rows, weight


class Wiping:
    """All wipes of a store that are under way."""

    def __init__(self, timeline: Engine, payload: Engine) -> None:
        self._timeline, self._payload = timeline, payload
        self._under_way: dict[int, _Wipe] = {}

    def __bool__(self) -> bool:
        return bool(self._under_way)

    @property
    def uids(self) -> frozenset[int]:
        """The partitions of which rows may be left."""
        return frozenset(self._under_way)

    def begin(self, uid: int, kept: Iterable[bytes] = ()) -> None:
        """Delete all rows that a partition has now, but for these keys; they no longer count, which is synced."""
        self._under_way[uid] = _Wipe([self._payload, self._timeline], uid, kept)

    def keep(self, uid: int, key: bytes) -> None:
        """A row comes that stays, though a wipe may be under way."""
        if uid in self._under_way:
            self._under_way[uid].kept.add(key)

    def step(self, timeline_batch: Batch, payload_batch: Batch) -> None:
        """Order the deletion of some rows. Whatever was ordered before the wipe began must be written."""
        batches = {self._timeline: timeline_batch, self._payload: payload_batch}
        rows, weight = WIPE_ROWS, WIPE_BYTES
        for uid, wipe in list(self._under_way.items()):
            rows, weight = wipe.step(batches, rows, weight)
            if not wipe.ended:
                return
            del self._under_way[uid]

    def finish(self, uid: int) -> None:
        """Delete the rest of a partition's rows now."""
        wipe = self._under_way.get(uid)
        if wipe is None:
            return
        while not wipe.ended:
            batches = {self._payload: Batch(), self._timeline: Batch()}
            wipe.step(batches, WIPE_ROWS, WIPE_BYTES)
            for engine, batch in batches.items():
                if batch:
                    engine.write(batch, sync=True)
        del self._under_way[uid]

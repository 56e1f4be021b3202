"""The store of one broker: all its partitions in two databases, written by group commits.

`timeline/` holds logs, index, leases, answers, checkpoints: small values. `payload/` holds the bodies. One commit
is one synced batch of each, payloads first: a record is in the log only after its payloads are on the disk, and a
commit without payloads costs one sync. Every row of `timeline/` is written by a synced batch, so after a crash the
state is exactly that of some commit.

Payloads of messages that have ended go as `garbage` says, and all rows of a partition as `wiping` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import Entries, State, block_starts, keys_of, packed
from dueq.core.ports.names import pack_owners
from dueq.core.ports.persistence import (
    AppendLog,
    CreatePartition,
    DropPartition,
    DropUpload,
    InstallBegin,
    InstallEnd,
    InstallRows,
    MarkProven,
    PartitionRead,
    PutChunk,
    ReadPartition,
    RecoveredPartition,
    SaveCheckpoint,
    SaveMeta,
    StoreRead,
    StoreReadDone,
    StoreWrite,
    TrimLog,
    TruncateLog,
)
from dueq.limits import BLOCK_BYTES
from dueq.storage.ordered import layout
from dueq.storage.ordered.batch import Batch
from dueq.storage.ordered.browsing import Browsing
from dueq.storage.ordered.engine import Engine, EngineDamaged, WriteFailed
from dueq.storage.ordered.format import FORMATS, Formats
from dueq.storage.ordered.garbage import Garbage, uploads_of
from dueq.storage.ordered.identity import Identity, Opener
from dueq.storage.ordered.layout import CHECKPOINT, LINK, META, START
from dueq.storage.ordered.logs import LogState
from dueq.storage.ordered.reading import Reading
from dueq.storage.ordered.recovery import Recovery
from dueq.storage.ordered.short_rows import shortened
from dueq.storage.ordered.snapshots import Snapshots, unpack_rows
from dueq.storage.ordered.space import LEVEL0_BUSY, Room, Space, judge, release_ballast
from dueq.storage.port import Pressure, StoreFailed
from dueq_codecs.frames import encode_record
from dueq_codecs.records import LogEntry
from dueq_codecs.rules import inline_bytes

_BY_NAME = itemgetter(0)
_SUSPECT = "suspect"
"""A file of this name says that something could not be read."""


class OrderedStore:
    """Everything that a broker keeps on disk.

    One thread commits; reads may come from another. No thread or clock of its own.

    Attributes:
        store_id: 16 hex digits, drawn with the store: the disk's identity.
        set_aside: why an older store in this folder was put aside, "" if none was.
    """

    def __init__(
        self,
        timeline: Engine,
        payload: Engine,
        identity: Identity,
        recovery: Recovery,
        room: Room | None = None,
    ) -> None:
        self._timeline, self._payload = timeline, payload
        self._identity, self._room = identity, room
        self.store_id = identity.store_id
        self.set_aside, self.upgraded = identity.set_aside, identity.upgraded
        self._lock = Lock()
        self._recovery = recovery
        self._logs, self._wiping = recovery.logs, recovery.wiping
        self._garbage = Garbage(timeline, payload)
        self._metas: dict[int, SaveMeta] = {}
        self._timeline_batch, self._payload_batch = Batch(), Batch()
        self._reading = Reading(timeline, payload)
        self._snapshots = Snapshots(timeline, payload, self._lock)
        self._browsing = Browsing(timeline, payload, self._lock)
        self._writers: dict[type, Any] = {
            CreatePartition: self._create,
            DropPartition: self._drop,
            AppendLog: self._append,
            TruncateLog: self._truncate,
            TrimLog: self._trim,
            SaveMeta: self._save_meta,
            SaveCheckpoint: self._checkpoint,
            PutChunk: self._put_chunk,
            DropUpload: self._drop_upload,
            InstallBegin: self._install_begin,
            InstallRows: self._install_rows,
            InstallEnd: self._install_end,
            MarkProven: self._mark_proven,
        }

    @classmethod
    def open(
        cls, folder: Path, broker_id: str, cluster_id: str = "", formats: Formats = FORMATS
    ) -> OrderedStore:
        """Open (or begin) the store in a folder, and hold the folder until `close`.

        Args:
            folder: the broker's data folder; made if it is not there.
            broker_id: whose it is.
            cluster_id: which mesh's, "" while that is not known (see `bind_cluster`).
            formats: what this build can open; a store of an older one of them is upgraded.

        Raises:
            InvalidRequest: the folder is in use, or belongs to another broker or cluster.
            UnknownVersion: the store is of a format that this build cannot open.
            StoreFailed: the disk is full, or the machine refuses otherwise. The reserve of disk space is given up
                for the next attempt.
        """
        found: list[Recovery] = []

        def verify(timeline: Engine, payload: Engine) -> None:
            found.append(Recovery(timeline, payload, folder))
            found[-1].verify(thoroughly=(folder / _SUSPECT).exists())

        try:
            identity, timeline, payload = Identity.open(
                folder, Opener(broker_id, cluster_id, formats), verify
            )
        except StoreFailed as error:
            release_ballast(folder)
            if isinstance(error, WriteFailed):
                _suspect(folder)
            raise
        except OSError as error:
            release_ballast(folder)
            raise StoreFailed(f"the data folder {folder}: {error.strerror}") from error
        (folder / _SUSPECT).unlink(missing_ok=True)
        space = Space(folder)
        space.make_ballast()
        return cls(timeline, payload, identity, found[-1], space)

    @classmethod
    def on(
        cls,
        timeline: Engine,
        payload: Engine,
        broker_id: str,
        cluster_id: str,
        store_id: str,
        room: Room | None = None,
        formats: Formats = FORMATS,
    ) -> OrderedStore:
        """Open a store on engines that are there already, and in no folder.

        Args:
            timeline, payload: the two databases.
            broker_id: whose it is.
            cluster_id: which mesh's.
            store_id: the id to give it if it is empty.
            room: what the engines may fill; None: there is no bound.
            formats: what this build can open.

        Raises:
            EngineDamaged: the two do not belong together.
            UnknownVersion: they are of a format that this build cannot open.
        """
        found: list[Recovery] = []

        def verify(timeline: Engine, payload: Engine) -> None:
            found.append(Recovery(timeline, payload, None))
            found[-1].verify(thoroughly=False)

        identity, timeline, payload = Identity.on(
            timeline, payload, Opener(broker_id, cluster_id, formats), store_id, verify
        )
        return cls(timeline, payload, identity, found[-1], room)

    def bind_cluster(self, cluster_id: str) -> None:
        """Tie a fresh store to its cluster; refuse a store of another one.

        Raises:
            InvalidRequest: it belongs to another cluster.
        """
        self._identity.bind_cluster(self._timeline, cluster_id)

    def recover(self) -> list[RecoveredPartition]:
        """Return every replica, verified; called once, before anything else."""
        found = self._recovery.take()
        # A crash may have come between a checkpoint and the sweep after it.
        known = [partition.uid for partition in found if not partition.unknown]
        self._garbage.due |= {uid: None for uid in known if uid in self._logs}
        return found

    def read(self, request: StoreRead) -> StoreReadDone | None:
        """Answer a read; None for those that have no answer.

        Raises:
            StoreFailed: the index or a log cannot be read: the next opening looks at every row.
        """
        try:
            return self._read(request)
        except (EngineDamaged, WriteFailed) as error:
            _suspect(self._identity.folder)
            raise StoreFailed(str(error)) from error

    def _read(self, request: StoreRead) -> StoreReadDone | None:
        if isinstance(request, ReadPartition):
            with self._lock:  # a damaged replica that it finds is set aside: no commit may come in between
                found = self._recovery.one(request.uid)
            if found.unreadable:  # the next opening leaves this replica out
                raise StoreFailed(found.unreadable)
            return PartitionRead(request.token, request.uid, found)
        if self._browsing.serves(request):
            return self._browsing.read(request)
        return (
            self._snapshots.read(request) if self._snapshots.serves(request) else self._reading.read(request)
        )

    def expire_snapshots(self, mono_us: int) -> None:
        """Close snapshots that nobody has read from for a while."""
        self._snapshots.expire(mono_us)

    def pressure(self) -> Pressure:
        """See Store."""
        return judge(self._level0_files(), self._room)

    def _level0_files(self) -> int:
        return max(self._timeline.level0_files(), self._payload.level0_files())

    def wiping(self) -> frozenset[int]:
        """See Store."""
        return self._wiping.uids

    def release_reserve(self) -> None:
        """See Store."""
        if self._identity.folder is not None:
            release_ballast(self._identity.folder)

    def close(self) -> None:
        """Close both databases and let the folder go."""
        self._snapshots.close()
        self._browsing.close()
        self._timeline.close()
        self._payload.close()
        self._identity.close()

    # -------------------------------------------------------------- committing

    def commit(self, writes: Sequence[StoreWrite]) -> None:
        """Write one group: in order, payloads first, synced.

        Raises:
            StoreFailed: the disk refused; this store takes no more writes. If it may have met damage, the next opening
                looks at every row.
        """
        try:
            with self._lock:
                self._commit(writes)
        except (EngineDamaged, WriteFailed) as error:
            _suspect(self._identity.folder)
            raise StoreFailed(str(error)) from error

    def _commit(self, writes: Sequence[StoreWrite]) -> None:
        self._recovery.outdated()
        self._garbage.changes()
        self._metas = {write.uid: write for write in writes if isinstance(write, SaveMeta)}
        for write in writes:
            if self._wiping:
                self._make_way(write)
            if not isinstance(write, DropUpload):
                self._garbage.changes()
            self._writers[type(write)](write)
        if self._wiping and self._level0_files() < LEVEL0_BUSY:
            self._wiping.step(self._timeline_batch, self._payload_batch)
        self._flush()
        if self._garbage.due:
            self._sweep()

    def _make_way(self, write: StoreWrite) -> None:
        """See that no wipe takes a new row for an old one. The rows of a write that is not named here stay anyway."""
        if isinstance(write, PutChunk):
            self._wiping.keep(write.uid, layout.chunk_key(write.uid, write.upload, write.chunk))
        elif not isinstance(write, SaveMeta | InstallBegin | DropPartition):
            self._wiping.finish(write.uid)

    def _sweep(self) -> None:
        """Delete payloads of ended messages that are in no log any more."""
        for uid in list(self._garbage.due):
            log = self._logs[uid]
            self._garbage.sweep(uid, log.start, self._timeline_batch, self._payload_batch)
        self._flush()

    def _flush(self) -> None:
        payload, self._payload_batch = self._payload_batch, Batch()
        timeline, self._timeline_batch = self._timeline_batch, Batch()
        self._garbage.written()
        if payload:
            self._payload.write(payload, sync=True)
        if timeline:
            self._timeline.write(timeline, sync=True)

    def _create(self, write: CreatePartition) -> None:
        self._logs[write.uid] = LogState()
        self._timeline_batch.append((layout.head(write.uid, b"P"), write.topic.encode()))

    def _drop(self, write: DropPartition) -> None:
        self._flush()
        self._logs.pop(write.uid, None)
        self._garbage.due.pop(write.uid, None)
        # A partition without the row P is wiped from the next opening on.
        self._timeline.write([(layout.head(write.uid, b"P"), None)], sync=True)
        self._wiping.begin(write.uid)

    # -------------------------------------------------------------- the log

    def _append(self, write: AppendLog) -> None:
        log, batch = self._logs[write.uid], self._timeline_batch
        for entry in write.entries:
            record = entry.record
            encoded = encode_record(record)
            link = log.append(record.sequence, record.epoch, encoded)
            batch.append((layout.log_key(write.uid, record.sequence), link + encoded))
            if len(entry.body):
                self._put_blocks(write.uid, entry)

    def _put_blocks(self, uid: int, entry: LogEntry) -> None:
        sequence, body = entry.record.sequence, memoryview(entry.body)
        for row, start, end in blocks_of(entry):
            if end > start:
                self._payload_batch.append((layout.block_key(uid, sequence, row), bytes(body[start:end])))

    def _truncate(self, write: TruncateLog) -> None:
        """Cut the log, together with the epoch that asked for it, before anything happens to the payloads.

        Other records will have the same sequences: their payloads must not take the place of those of records that
        a crash would bring back.
        """
        self._flush()
        log, uid = self._logs[write.uid], write.uid
        for sequence in range(write.from_sequence, log.end + 1):
            self._timeline_batch.append((layout.log_key(uid, sequence), None))
        meta = self._metas.get(uid)
        if meta is not None:
            commit = min(meta.commit, write.from_sequence - 1)
            self._timeline_batch.append((layout.head(uid, b"M"), META.pack(meta.epoch, commit)))
        self._flush()
        first = layout.block_key(uid, write.from_sequence, 0)
        self._payload_batch.extend((key, None) for key in self._payload.keys(first, layout.head(uid, b"c")))
        log.cut(write.from_sequence, self._link_at(uid, log, write.from_sequence - 1))

    def _link_at(self, uid: int, log: LogState, sequence: int) -> int:
        if sequence < log.start:
            return log.base_link
        row = self._timeline.get(layout.log_key(uid, sequence))
        if row is None:  # it is one of those that are being written
            self._flush()
            row = self._timeline.get(layout.log_key(uid, sequence))
        assert row is not None
        return int(LINK.unpack_from(row)[0])

    def _trim(self, write: TrimLog) -> None:
        log, uid = self._logs[write.uid], write.uid
        link = self._link_at(uid, log, write.below - 1)
        for sequence in range(log.start, write.below):
            self._timeline_batch.append((layout.log_key(uid, sequence), None))
        log.trim(write.below, link)
        start = START.pack(log.start, log.epochs[0][0], link)
        self._timeline_batch.append((layout.head(uid, b"T"), start))
        self._garbage.due[uid] = None

    def _save_meta(self, write: SaveMeta) -> None:
        self._timeline_batch.append((layout.head(write.uid, b"M"), META.pack(write.epoch, write.commit)))

    # -------------------------------------------------------------- checkpoints

    def _checkpoint(self, write: SaveCheckpoint) -> None:
        uid, batch = write.uid, self._timeline_batch
        if len(write.unwait):
            wait_at, key, first = write.unwait[:, 0], write.unwait[:, 1], write.unwait[:, 2]
            batch.extend((gone, None) for gone in layout.index_keys(uid, wait_at, key, write.unwait_of))
            moved = key[wait_at != first] if write.unwait_of is None else key
            batch.extend((gone, None) for gone in layout.message_keys(uid, b"o", moved))
        batch.extend((gone, None) for gone in layout.message_keys(uid, b"l", write.unlease))
        if len(write.undie):
            died_at, key = write.undie[:, 0], write.undie[:, 1]
            batch.extend((gone, None) for gone in layout.dead_keys(uid, died_at, key))
            batch.extend((gone, None) for gone in layout.message_keys(uid, b"o", key))
        if write.remarks:
            names = layout.message_keys(uid, b"t", np.array([key for key, _ in write.remarks], np.uint64))
            texts = [text.encode() if text is not None else None for _, text in write.remarks]
            batch.put(names, texts)
        self._put_entries(write)
        self._garbage.ended(uid, write.finished, self._logs[uid].start, batch)
        for tag, named in ((b"k", write.names), (b"e", write.remembered)):
            head = layout.head(uid, tag)
            # In order: LevelDB finds the places of neighbours in half the time.
            batch.extend([(head + name, value) for name, value in sorted(named, key=_BY_NAME)])
        if len(write.borne.high):
            order = np.argsort(write.borne.high)
            high, low, first, key = (column[order] for column in write.borne)
            batch.put(layout.name_keys(uid, high, low), pack_owners(first, key))
        for tag, rows in write.tables.items():
            prefix = layout.table_head(uid, tag)
            batch.extend((prefix + key, value) for key, value in rows)
        epoch = self._logs[uid].epoch_at(write.applied)
        value = CHECKPOINT.pack(write.applied, epoch, write.low_water) + write.summary
        batch.append((layout.head(uid, b"C"), value))

    def _put_entries(self, write: SaveCheckpoint) -> None:
        uid, put, put_of, batch = write.uid, write.put, write.put_of, self._timeline_batch
        if not len(put):
            return
        waits = _in_order(put, put_of)
        waiting, leased = put.take(waits), put[put["state"] == State.LEASED]
        of = put_of[waits] if put_of is not None else None
        keys, at = keys_of(waiting), waiting["wait_at"]
        values = shortened(waiting) if write.short else packed(waiting)
        batch.put(layout.index_keys(uid, at, keys, of), values)
        batch.put(layout.message_keys(uid, b"l", keys_of(leased)), packed(leased))
        if of is None:
            moved = at != waiting["first"]
            keys, at = keys[moved], at[moved]
        batch.put(layout.message_keys(uid, b"o", keys), layout.places(at, of))
        dead = put[put["state"] == State.DEAD]
        if len(dead):
            keys, at = keys_of(dead), np.ascontiguousarray(dead["died_at"])
            batch.put(layout.dead_keys(uid, at, keys), packed(dead))
            batch.put(layout.message_keys(uid, b"o", keys), layout.dead_places(at))
        for upload, sequence in uploads_of(put):
            batch.append((layout.named_key(uid, upload), sequence.to_bytes(5, "big")))

    # -------------------------------------------------------------- uploads

    def _put_chunk(self, write: PutChunk) -> None:
        key = layout.chunk_key(write.uid, write.upload, write.chunk)
        self._payload_batch.append((key, bytes(write.data)))

    def _drop_upload(self, write: DropUpload) -> None:
        """Delete an upload's chunks, unless a live message has them, or the sweep of its record will."""
        self._flush()
        uid, prefix = write.uid, layout.chunk_key(write.uid, write.upload, 0)[:-2]
        named = self._timeline.get(layout.named_key(uid, write.upload)) is not None
        if not named and not self._garbage.lists(uid, write.upload):
            self._payload_batch.extend(
                (key, None) for key in self._payload.keys(prefix, layout.after(prefix))
            )

    # -------------------------------------------------------------- installing

    def _install_begin(self, write: InstallBegin) -> None:
        self._flush()
        mark, topic = layout.head(write.uid, b"X"), layout.head(write.uid, b"P")
        meta = layout.head(write.uid, b"M")
        self._timeline.write(
            [(mark, layout.INSTALLING), (topic, write.topic.encode()), (meta, META.pack(write.epoch, 0))],
            sync=True,
        )
        self._wiping.begin(write.uid, kept=(mark, topic, meta))
        self._garbage.due.pop(write.uid, None)
        self._logs[write.uid] = LogState()

    def _install_rows(self, write: InstallRows) -> None:
        timeline, payload = unpack_rows(write.uid, write.data)
        self._timeline_batch.extend(timeline)
        self._payload_batch.extend(payload)

    def _install_end(self, write: InstallEnd) -> None:
        self._flush()
        uid = write.uid
        first = write.applied + 1
        self._logs[uid] = LogState(first, write.applied, [(write.applied_epoch, write.applied)])
        self._timeline_batch.extend(
            [
                (layout.head(uid, b"T"), START.pack(first, write.applied_epoch, 0)),
                (layout.head(uid, b"M"), META.pack(write.epoch, write.applied)),
                (layout.head(uid, b"X"), layout.UNPROVEN),
            ]
        )
        self._garbage.due[uid] = None

    def _mark_proven(self, write: MarkProven) -> None:
        self._timeline_batch.append((layout.head(write.uid, b"X"), None))


def _suspect(folder: Path | None) -> None:
    """Have the next opening look at every row."""
    if folder is not None:
        with suppress(OSError):  # a full disk: the opening after the next one, then
            (folder / _SUSPECT).touch()


def _in_order(put: Entries, put_of: npt.NDArray[np.uint8] | None) -> npt.NDArray[np.intp]:
    """Return where the waiting entries are, as the index has them: LevelDB takes neighbours in at less cost."""
    waits = np.flatnonzero(put["state"] == State.WAITING)
    order = put["wait_at"][waits]
    if put_of is None:
        return waits[np.argsort(order)]
    return waits[np.lexsort((order, *put_of[waits].T[::-1]))]


def blocks_of(entry: LogEntry) -> Iterable[tuple[int, int, int]]:
    """Yield (first row, start, end) of each payload block in an insert's body."""
    sizes = inline_bytes(entry.record)
    starts = block_starts(sizes, BLOCK_BYTES)
    ends = sizes.cumsum(dtype=np.int64)
    offsets = [0, *ends[starts[1:] - 1].tolist(), int(ends[-1])]
    return zip(starts.tolist(), offsets, offsets[1:], strict=False)

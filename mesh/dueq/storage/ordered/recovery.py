"""Opening: every log is verified before it is trusted, and the state that the core needs of each replica is read.

A log must be contiguous, its epochs may not fall, its CRC chain must hold, and every record after the checkpoint
must have its payload bytes. A replica that fails is set aside in a file of its own and wiped; the core is told, and
the broker is a stranger to that partition, not to the others. Where there is no room for such a file, the replica is
not opened: it stays as it is, and its leader goes on without it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

from dueq.core.ports.entry import FULL, NO_ENTRIES, is_known, unpacked
from dueq.core.ports.persistence import RecoveredPartition
from dueq.core.ports.tables import TableRow, Tables
from dueq.limits import LOG_RETAIN_BYTES
from dueq.storage.ordered import layout
from dueq.storage.ordered.aside import drop_halves, keep_rows
from dueq.storage.ordered.engine import Engine, Operation
from dueq.storage.ordered.layout import CHECKPOINT, LINK, META, START
from dueq.storage.ordered.logs import LogState
from dueq.storage.ordered.reading import read_entry
from dueq.storage.ordered.rows import pack_row
from dueq.storage.ordered.space import Space
from dueq.storage.ordered.wiping import Wiping
from dueq_codecs.frames import FrameError, bytes_beside_record, place_of_record
from dueq_codecs.messages import Code
from dueq_codecs.records import LogEntry

_WEIGHED_BYTES: Final = LOG_RETAIN_BYTES // 128
"""Neighbouring records are weighed together until they have so many bytes: a log is trimmed only about right."""


class _Damaged(Exception):
    """This replica does not hold all that it must."""


class _CannotKeep(Exception):
    """The rows of a damaged replica cannot be copied."""


class Recovery:
    """Reads replicas back.

    Attributes:
        logs: the state of each log, as verified; the store goes on with them.
        wiping: what deleted and damaged partitions have left; the store goes on with it, too.
    """

    def __init__(self, timeline: Engine, payload: Engine, folder: Path | None) -> None:
        self._timeline, self._payload, self._folder = timeline, payload, folder
        self.logs: dict[int, LogState] = {}
        self.wiping = Wiping(timeline, payload)
        self._found: list[RecoveredPartition] | None = None

    def verify(self, *, thoroughly: bool) -> None:
        """Read and verify every replica; note what deleted partitions have left.

        Args:
            thoroughly: read every row, the index and all payloads too; LevelDB tells of a damaged block only when it is
                read.

        Raises:
            EngineDamaged: some file of the database is damaged.
        """
        if thoroughly:
            for engine in (self._timeline, self._payload):
                for _ in engine.scan(b"", layout.BEHIND_ALL):
                    pass
        if self._folder is not None:
            drop_halves(self._folder)
        self._found = []
        for uid in self._uids():
            if self._timeline.get(layout.head(uid, b"P")) is None:
                self.wiping.begin(uid)
            else:
                self._found.append(self.one(uid))

    def take(self) -> list[RecoveredPartition]:
        """Return what `verify` has found, once; later calls read anew."""
        if self._found is None:
            self.verify(thoroughly=False)
        found, self._found = self._found or [], None
        return found

    def outdated(self) -> None:
        """Something was written since."""
        self._found = None

    def _uids(self) -> list[int]:
        uids: list[int] = []
        for engine in (self._timeline, self._payload):
            start = layout.FIRST_UID
            while True:
                key = next(iter(engine.keys(start, layout.BEHIND_ALL)), None)
                if key is None:
                    break
                uid = int.from_bytes(key[:3], "big")
                uids.append(uid)
                if uid == 0xFFFFFF:
                    break
                start = (uid + 1).to_bytes(3, "big")
        return sorted(set(uids))

    def one(self, uid: int) -> RecoveredPartition:
        """One replica, verified; an empty one if it was dropped, whatever is left of its rows."""
        partition = self._timeline.get(layout.head(uid, b"P"))
        topic = (partition or b"").decode()
        meta = self._timeline.get(layout.head(uid, b"M"))
        epoch, commit = META.unpack(meta) if meta is not None else (0, 0)
        blank = RecoveredPartition(uid, topic, epoch, 0, 0, 1, 0, [(0, 0)], [], 0, NO_ENTRIES, {}, b"", [])
        if partition is None:
            return blank
        mark = self._timeline.get(layout.head(uid, b"X"))
        if mark not in (None, layout.UNPROVEN):
            self.logs[uid] = LogState()
            blank.installing = True
            return blank
        try:
            found = self._read(uid, topic, epoch, commit)
            found.unproven = mark is not None
            return found
        except (_Damaged, FrameError, struct.error) as damage:
            if isinstance(damage, FrameError) and damage.code == Code.WRONG_VERSION:
                blank.unreadable = f"its log holds what only a newer build can read: {damage}"
                return blank
            try:
                blank.damaged = f"{damage}; kept as {self._set_aside(uid, topic)}"
            except _CannotKeep as trouble:
                blank.unreadable = f"{damage}. Its rows stay as they are, since {trouble}"
            return blank

    def _read(self, uid: int, topic: str, epoch: int, commit: int) -> RecoveredPartition:
        checkpoint = self._timeline.get(layout.head(uid, b"C"))
        applied = low_water = 0
        summary = b""
        if checkpoint is not None:
            applied, _, low_water = CHECKPOINT.unpack_from(checkpoint)
            summary = checkpoint[CHECKPOINT.size :]
        log, weights, tail = self._verify_log(uid, applied)
        if log.end < applied:
            raise _Damaged(
                f"the log of partition {uid} ends at {log.end}, before the checkpoint at {applied}"
            )
        self.logs[uid] = log
        self._cut_payloads(uid, log.end)
        leased = [value for _, value in self._rows(uid, b"l")]
        unknown = _of_another_size(leased)
        return RecoveredPartition(
            uid, topic, epoch, min(commit, log.end), applied, log.start, log.end, list(log.epochs), tail, low_water,
            NO_ENTRIES if unknown else unpacked(leased),
            self._tables(uid),
            summary,
            self._orphans(uid, tail),
            weights=weights,
            unknown=unknown,
        )  # fmt: skip

    def _tables(self, uid: int) -> Tables:
        """Everything that is not the store's own: it need not know which side tables there are."""
        tables: Tables = {}
        for first, behind in layout.table_ranges(uid):
            for key, value in self._timeline.scan(first, behind):
                tables.setdefault(key[3:4], []).append(TableRow(key[4:], value))
        return tables

    def _rows(self, uid: int, tag: bytes) -> list[tuple[bytes, bytes]]:
        prefix = layout.head(uid, tag)
        return list(self._timeline.scan(prefix, layout.after(prefix)))

    def _verify_log(self, uid: int, applied: int) -> tuple[LogState, list[tuple[int, int]], list[LogEntry]]:
        """Check every row; returns the log, what records up to the checkpoint weigh, and the entries after it."""
        log = LogState()
        start = self._timeline.get(layout.head(uid, b"T"))
        if start is not None:
            log.start, base_epoch, log.base_link = START.unpack(start)
            log.end, log.link, log.epochs = log.start - 1, log.base_link, [(base_epoch, log.start - 1)]
        tail: list[LogEntry] = []
        weights: list[tuple[int, int]] = []
        weight = 0
        prefix = layout.head(uid, b"L")
        for key, row in self._timeline.scan(prefix, layout.after(prefix)):
            sequence = int.from_bytes(key[4:], "big")
            if sequence != log.end + 1:
                raise _Damaged(f"the log of partition {uid} has {sequence} after {log.end}")
            encoded = row[LINK.size :]
            if LINK.unpack_from(row)[0] != crc32(encoded, log.link):
                raise _Damaged(f"record {sequence} of partition {uid} breaks the CRC chain")
            place, epoch = place_of_record(encoded)
            if place != sequence or epoch < log.epochs[-1][0]:
                raise _Damaged(f"record {sequence} of partition {uid} is out of order")
            log.append(sequence, epoch, encoded)
            if sequence > applied:
                entry = read_entry(self._payload, uid, row)
                if entry is None:
                    raise _Damaged(f"record {sequence} of partition {uid} has lost its payloads")
                tail.append(entry)
                continue
            weight += len(row) + bytes_beside_record(encoded)
            if weight >= _WEIGHED_BYTES or sequence == applied:
                weights.append((sequence, weight))
                weight = 0
        return log, weights, tail

    def _cut_payloads(self, uid: int, end: int) -> None:
        """Payloads are synced before their record: a crash in between leaves some that no record names."""
        first = layout.block_key(uid, end + 1, 0)
        cut: list[Operation] = [(key, None) for key in self._payload.keys(first, layout.head(uid, b"c"))]
        if cut:
            self._payload.write(cut, sync=True)

    def _orphans(self, uid: int, tail: list[LogEntry]) -> list[int]:
        """Uploads that neither a live entry nor a record to be replayed names, nor garbage lists."""
        uploads = list(self._uploads(uid))
        if not uploads:
            return []
        named = {int.from_bytes(key[4:], "big") for key, _ in self._rows(uid, b"v")}
        named.update(number for entry in tail for number in entry.record.upload.tolist())
        named.update(
            int.from_bytes(key[10:18], "big") for key, _ in self._rows(uid, b"g") if key[9:10] == b"u"
        )
        return [number for number in uploads if number not in named]

    def _uploads(self, uid: int) -> Iterator[int]:
        """The numbers of all uploads on the disk, from first chunk to first chunk: each is 256 KiB to read."""
        at = layout.head(uid, b"u")
        stop = layout.after(at)
        while (key := next(iter(self._payload.keys(at, stop)), None)) is not None:
            yield int.from_bytes(key[4:12], "big")
            at = layout.after(key[:12])

    def _set_aside(self, uid: int, topic: str) -> str:
        """Keep a damaged replica's rows in a file, and begin it anew, marked `installing`."""
        name = "nothing" if self._folder is None else self._keep(self._folder, uid)
        mark, partition, meta = (layout.head(uid, tag) for tag in (b"X", b"P", b"M"))
        # The mark comes first and stays: a crash in the middle must not leave an empty replica that is trusted.
        self._timeline.write([(mark, layout.INSTALLING), (partition, topic.encode())], sync=True)
        self.wiping.begin(uid, kept=(mark, partition, meta))
        self.logs[uid] = LogState()
        return name

    def _keep(self, folder: Path, uid: int) -> str:
        """Copy a replica's rows to a file, if the broker can go on beside it; returns its name."""
        needed, spare = sum(map(len, self._packed(uid))), Space(folder).spare_bytes()
        if needed > spare:
            raise _CannotKeep(
                f"a copy of {needed} bytes would leave too little room in {folder}: free {needed - spare} bytes there,"
                " and start the broker again"
            )
        try:
            return str(keep_rows(folder, uid, self._packed(uid)))
        except OSError as error:
            raise _CannotKeep(
                f"they cannot be copied to {folder}: {error.strerror}. Mend that, and start the broker again"
            ) from error

    def _packed(self, uid: int) -> Iterator[bytes]:
        for which, engine in enumerate((self._timeline, self._payload)):
            for key, value in engine.scan(*layout.whole(uid)):
                yield pack_row(which, key, value)


def _of_another_size(entries: list[bytes]) -> str:
    """Say so if some entry is not of this build's layout."""
    sizes = {len(entry) for entry in entries if not is_known(len(entry))}
    return f"entries of {min(sizes)} bytes; this build knows up to {FULL.itemsize}" if sizes else ""

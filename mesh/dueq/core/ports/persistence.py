"""The core's orders to the store, and its answers. The store (`dueq.storage`) is a peer: orders go out
with a token, and the answer comes back as an event.

Writes of one `Persist` effect take effect in order, atomically per database, after the writes of every earlier one.
Payload bytes are synced before the rows of `timeline/` that name them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import NO_ENTRIES, Entries
from dueq.core.ports.names import NOT_BORNE, Borne, Name
from dueq.core.ports.tables import Tables
from dueq_codecs.records import LogEntry

# ---------------------------------------------------------------- writes


@dataclass(slots=True)
class CreatePartition:
    """Begin an empty replica."""

    uid: int
    topic: str


@dataclass(slots=True)
class DropPartition:
    """Delete a replica with everything it has (only after its tombstone was seen)."""

    uid: int


@dataclass(slots=True)
class AppendLog:
    """Put entries at the end of the log, payloads first."""

    uid: int
    entries: list[LogEntry]


@dataclass(slots=True)
class TruncateLog:
    """Delete every record at or after `from_sequence`, and its payloads."""

    uid: int
    from_sequence: int


@dataclass(slots=True)
class TrimLog:
    """Delete records below `below`; payloads of finished messages below it may go too."""

    uid: int
    below: int


@dataclass(slots=True)
class SaveMeta:
    """The largest epoch led or followed, and the commit position."""

    uid: int
    epoch: int
    commit: int


@dataclass(slots=True)
class SaveCheckpoint:
    """All rows of one partition's state that changed since its last checkpoint: one atomic batch."""

    uid: int
    applied: int
    """The state is that after this record."""
    low_water: int
    """No waiting message is below this instant (ms)."""
    put: Entries = field(default_factory=lambda: NO_ENTRIES)
    """Entries as they are now; state says waiting, leased or dead."""
    put_of: npt.NDArray[np.uint8] | None = None
    """The class of each, as keys of the index begin (a row of bytes each); None: the index has no classes."""
    short: bool = False
    """Waiting entries may have a short form on the disk: all builds that may come to read it know one."""
    unwait: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty((0, 3), np.uint64))
    """(wait_at, key, first) of rows that are on disk as waiting and must go (moved, leased or finished)."""
    unwait_of: npt.NDArray[np.uint8] | None = None
    """The class of each."""
    undie: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty((0, 2), np.uint64))
    """(died_at, key) of rows that are on disk as dead and must go (redriven or discarded)."""
    remarks: list[tuple[int, str | None]] = field(default_factory=list)
    """The last reasons of messages, by key; None deletes one."""
    unlease: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    """Keys of rows that are on disk as leased and must go."""
    finished: Entries = field(default_factory=lambda: NO_ENTRIES)
    """Messages that ended since the last checkpoint: their payloads are garbage (sequence, row, place,
    block_rows, flags and size matter)."""
    names: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    """Rows of unique keys, by their hashes (see `ports/names`); None deletes one."""
    borne: Borne = NOT_BORNE
    """Unique keys that messages bear since the last one, and that nobody bore before; none of them is in `names`."""
    remembered: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    """Rows of the index of remembered keys, by `expiry_key`; None deletes one."""
    tables: Tables = field(default_factory=dict)
    """Rows of side tables that changed."""
    summary: bytes = b""
    """Small fixed part of the state (counts), the core's own packing."""


@dataclass(slots=True)
class PutChunk:
    """One chunk of an upload."""

    uid: int
    upload: int
    chunk: int
    data: bytes | memoryview


@dataclass(slots=True)
class DropUpload:
    """Delete all chunks of an upload that no record names."""

    uid: int
    upload: int


@dataclass(slots=True)
class InstallBegin:
    """Mark the replica `installing` and wipe it (the mark and epoch are synced first)."""

    uid: int
    topic: str
    epoch: int


@dataclass(slots=True)
class InstallRows:
    """One part of a snapshot as it came from the leader (packed rows of both databases)."""

    uid: int
    data: bytes | memoryview


@dataclass(slots=True)
class InstallEnd:
    """All parts are in: set applied, commit and epoch; the mark `installing` becomes `unproven`.

    The log begins again at `applied + 1`; `applied_epoch` is the epoch of record `applied`.
    """

    uid: int
    applied: int
    applied_epoch: int
    epoch: int


@dataclass(slots=True)
class MarkProven:
    """The replica has caught up with a leader: remove its mark."""

    uid: int


StoreWrite = (
    CreatePartition
    | DropPartition
    | AppendLog
    | TruncateLog
    | TrimLog
    | SaveMeta
    | SaveCheckpoint
    | PutChunk
    | DropUpload
    | InstallBegin
    | InstallRows
    | InstallEnd
    | MarkProven
)

# ---------------------------------------------------------------- reads


@dataclass(slots=True)
class ReadEntries:
    """Find waiting or dead entries by their whole ids (three columns of one length)."""

    token: int
    uid: int
    first: npt.NDArray[np.uint64]
    sequence: npt.NDArray[np.uint64]
    row: npt.NDArray[np.uint16]


@dataclass(slots=True)
class EntriesRead:
    """Those that are on disk, in any order; ids without an entry are absent."""

    token: int
    uid: int
    entries: Entries


@dataclass(slots=True)
class ReadNames:
    """Find unique keys by their hashes, and the waiting entries of the messages that bear them."""

    token: int
    uid: int
    hashes: list[bytes]


@dataclass(slots=True)
class NamesRead:
    """Both of one state of the disk."""

    token: int
    uid: int
    found: dict[bytes, Name]
    """Those that are on the disk."""
    entries: Entries
    """In any order; of leased messages there are none."""


@dataclass(slots=True)
class ReadExpired:
    """Find keys that are remembered until before this age, the oldest first."""

    token: int
    uid: int
    before: int
    limit: int


@dataclass(slots=True)
class ExpiredRead:
    token: int
    uid: int
    expired: list[tuple[int, bytes]]
    """(until, hash)"""
    following: int | None
    """Until when the next one is remembered; None: there is none."""
    stale: list[tuple[int, bytes]] = field(default_factory=list)
    """The same of what remains of keys whose rows say something else."""


@dataclass(slots=True)
class ReadHashes:
    """Find which unique keys the disk has, in the order of their hashes, from behind this one on."""

    token: int
    uid: int
    after: bytes
    limit: int


@dataclass(slots=True)
class HashesRead:
    token: int
    uid: int
    hashes: bytes
    """All of them, one behind the other."""
    ended: bool
    """Whether there are no more."""


@dataclass(slots=True)
class ScanIndex:
    """Read waiting entries of one class or several: of each in order of (wait_at, sequence, row), after a position."""

    token: int
    uid: int
    after_wait_at: int
    after_key: int
    limit: int
    hidden: frozenset[int] = frozenset()
    """Numbers of jobs whose entries are left out."""
    of: bytes = b""
    """The class to read, as keys of the index begin; empty: the index has no classes."""
    more: tuple[tuple[bytes, int, int], ...] = ()
    """Classes to read after it, ascending, each with wait_at and key of the position."""
    each: int = 0
    """At most this many entries of one class; 0: no fewer than `limit`."""
    onward: bool = False
    """The classes that follow on the disk are read, too, as far as `limit` and `limits.SCAN_CLASSES_MAX` allow."""
    dead: bool = False
    """Read dead entries instead, in order of their deaths: positions are (died_at, key)."""


class ClassLooked(NamedTuple):
    """The result of a scan of several classes, for one of them."""

    of: bytes
    looked_to: tuple[int, int] | None
    """(wait_at, key) of the last entry that was looked at; None: there was none."""
    exhausted: bool
    """No entry of this class lies behind it."""


@dataclass(slots=True)
class IndexScanned:
    token: int
    uid: int
    entries: Entries
    exhausted: bool
    """Nothing of the class that was asked for lies behind its last entry."""
    looked_to: tuple[int, int] | None = None
    """(wait_at, key) of its last entry that was looked at, one that was left out included; None: there was none."""
    left_out: frozenset[int] = frozenset()
    """Numbers of jobs of which entries were left out."""
    following: bytes | None = None
    """The next class behind all that were read that has entries; None: there is none, or the index has no classes."""
    beyond: tuple[ClassLooked, ...] = ()
    """The other classes that were read, ascending: perhaps fewer than were asked for."""


@dataclass(slots=True)
class ReadLog:
    """Read records (with bodies) from `from_sequence`, at least one, at most about `bytes_max`."""

    token: int
    uid: int
    from_sequence: int
    bytes_max: int


@dataclass(slots=True)
class LogRead:
    token: int
    uid: int
    from_sequence: int
    entries: list[LogEntry]
    """Empty when the log no longer holds `from_sequence`."""


@dataclass(slots=True)
class ReadPayloads:
    """Read the payloads of entries (short ones only; uploads are read chunk by chunk)."""

    token: int
    uid: int
    entries: Entries


@dataclass(slots=True)
class PayloadsRead:
    token: int
    uid: int
    entries: Entries
    payloads: list[bytes | None]
    """One per entry, checked against its CRC; None: missing or damaged."""


CHUNK_INDEX_MAX: Final = (1 << 16) - 1
"""Last chunk of an upload that a key of the store can name."""


@dataclass(slots=True)
class ReadChunk:
    token: int
    uid: int
    upload: int
    chunk: int
    pages: int = 0
    """Not 0: as the pages of this number have it, not as it is now."""


@dataclass(slots=True)
class ChunkRead:
    token: int
    uid: int
    upload: int
    chunk: int
    data: bytes | None


@dataclass(slots=True)
class ReadRemark:
    """Read why a message was given back last."""

    token: int
    uid: int
    key: int


@dataclass(slots=True)
class RemarkRead:
    token: int
    uid: int
    text: str
    """Empty: there is none."""


@dataclass(slots=True)
class ReadSnapshot:
    """Read part `part` of a snapshot; snapshot 0 opens a new one (at the last checkpoint)."""

    token: int
    uid: int
    snapshot: int
    part: int
    bytes_max: int
    without_lost: bool = False
    """A new one: a chunk that cannot be read is left out like one that is missing; otherwise it is damage."""


@dataclass(slots=True)
class SnapshotRead:
    token: int
    uid: int
    snapshot: int
    part: int
    applied: int
    applied_epoch: int
    """Epoch of record `applied`; 0 when nothing was ever applied."""
    data: bytes
    last: bool
    failed: bool = False
    """The snapshot is gone (idle too long): begin again."""


@dataclass(slots=True)
class CloseSnapshot:
    token: int
    uid: int
    snapshot: int


@dataclass(slots=True)
class ReadPage:
    """Read waiting entries for a client that browses, in the order of the index: class by class."""

    token: int
    uid: int
    pages: int
    """Number of the snapshot, chosen by the core …"""
    begin: bool
    """… which is to be opened now, at the last checkpoint."""
    from_ms: int
    until_ms: int
    """Entries that wait until from_ms ≤ wait_at < until_ms; 0: no end."""
    after: tuple[int, int]
    """(wait_at, key) of the entry behind which to go on; (0, 0): at the beginning."""
    limit: int
    bytes_max: int
    payloads: bool
    """Read the payloads too; otherwise only the keys that some begin with."""
    hidden: frozenset[int] = frozenset()
    """Numbers of jobs whose entries are left out."""
    class_bytes: int = 0
    """How long a class is in keys of the index; 0: there is only one."""
    of: bytes = b""
    """Go on at the beginning of this class, wherever `after` lies; empty: in the class of `after`."""
    dead: bool = False
    """Read dead entries instead, in order of their deaths: these are the instants of all positions."""
    after_of: bytes = b""
    """The class of `after`; empty: as its row says, which must be there then."""


@dataclass(slots=True)
class PageRead:
    """At most `limit` entries and about `bytes_max` of their payloads, uploads counted; one entry at least."""

    token: int
    uid: int
    pages: int
    applied: int
    """The snapshot is the state after this record."""
    summary: bytes
    """As the checkpoint has it."""
    entries: Entries
    body: bytes
    """Payloads (or keys with their length), one after the other …"""
    body_size: npt.NDArray[np.uint32]
    """… of these sizes; 0 for uploads whose payload was asked for, and for what could not be read."""
    after: tuple[int, int]
    """Where the next page begins. It may have moved without entries: all that was looked at was hidden …"""
    last: bool
    unreadable: int = 0
    """Entries whose payload is missing or damaged."""
    of: bytes = b""
    """… or there were many classes without any in the range: then the class to go on with."""
    reasons: list[str] = field(default_factory=list)
    """Of dead entries, why each was given back last; "": nobody has said."""


@dataclass(slots=True)
class ClosePages:
    token: int
    uid: int
    pages: int


# ---------------------------------------------------------------- opening


@dataclass(slots=True)
class RecoveredPartition:
    """One replica as the store holds it when the broker starts."""

    uid: int
    topic: str
    epoch: int
    commit: int
    applied: int
    log_start: int
    """First sequence that the log still holds (log_end + 1 when it is empty)."""
    log_end: int
    epochs: list[tuple[int, int]]
    """(epoch, first sequence) of the log, oldest first; begins with the epoch of record `log_start - 1`
    (0 when the log begins at 1)."""
    tail: list[LogEntry]
    """Records after `applied`, to replay (bodies included)."""
    low_water: int
    leased: Entries
    tables: Tables
    """All rows of all side tables, those of tables that this build does not know included."""
    summary: bytes
    uploads: list[int]
    """Upload numbers that have chunks on disk."""
    weights: list[tuple[int, int]] = field(default_factory=list)
    """(last sequence, bytes) of neighbouring records of the log before the tail, oldest first: what the disk keeps of
    them, payloads and uploads included."""
    installing: bool = False
    unproven: bool = False
    """It was filled from a snapshot, and has not caught up with a leader since."""
    damaged: str = ""
    """Why this replica cannot be used; it has been set aside and the broker is a stranger to it."""
    unknown: str = ""
    """A newer build must have written this: this one cannot read the state. The log is read, and goes on."""
    unreadable: str = ""
    """Why the replica is not opened, and stays as it is: a newer build wrote a part of its log, or it is damaged and
    cannot be set aside.
    """


@dataclass(slots=True)
class ReadPartition:
    """Read a whole replica as `recover` would: after a snapshot was installed."""

    token: int
    uid: int


@dataclass(slots=True)
class PartitionRead:
    token: int
    uid: int
    recovered: RecoveredPartition


StoreRead = (
    ReadEntries
    | ReadNames
    | ReadExpired
    | ReadHashes
    | ScanIndex
    | ReadLog
    | ReadPayloads
    | ReadChunk
    | ReadRemark
    | ReadSnapshot
    | CloseSnapshot
    | ReadPage
    | ClosePages
    | ReadPartition
)
StoreReadDone = (
    EntriesRead
    | NamesRead
    | ExpiredRead
    | HashesRead
    | IndexScanned
    | LogRead
    | PayloadsRead
    | ChunkRead
    | RemarkRead
    | SnapshotRead
    | PageRead
    | PartitionRead
)

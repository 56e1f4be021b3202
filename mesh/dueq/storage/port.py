"""The port of a store: a broker's demands on the keeper of its partitions.

The words are those of `dueq.core.ports.persistence`: writes, reads and their answers. How a store keeps them is its own
business: it needs no ordered keys and no snapshots of a database, only the promises below.

**Commits.** The writes of one `commit` take effect in order. When it returns, they are durable, if the store is.
After a crash the store holds all commits that have returned, and some writes of the commit that was under way. Of the
latter, a record is there with its payloads or not at all, and a checkpoint is there as a whole or not at all.

**Reads** show the state after some commit: one that returned before the read was asked for, or a later one. `ReadPage`
and `ReadSnapshot` continue on the state that their first read has opened.

**Wipes.** A `DropPartition` or `InstallBegin` has taken effect when its commit returns. A store may delete the rows
themselves little by little: each later commit deletes some of them, one without writes too, and `wiping` names the
partition until then. Reads of such a partition may see any part of the old rows; nobody waits for their answers.
`CreatePartition`, and everything else that brings new rows, must be exact meanwhile, but may take as long as the rest
of the wipe.

**Snapshots** travel between brokers whose stores may be of different kinds, so their bytes are the wire's: the rows of
`dueq.storage.ordered.rows`, with the keys of `dueq.storage.ordered.layout` and waiting entries as `short_rows` there
reads them. A store of another layout converts.

**Threads.** One thread commits; another one reads and expires snapshots. `pressure` and `wiping` belong to the one
that commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dueq.core.ports.persistence import RecoveredPartition, StoreRead, StoreReadDone, StoreWrite


class StoreFailed(Exception):
    """The machine refuses: a write or sync failed, or the store cannot be opened for want of space or files.

    Its content is unknown until the store is opened again; it is not known to be damaged.
    """


@dataclass(frozen=True, slots=True)
class Pressure:
    """A store's load: its fullness, and its backlog of own work.

    Attributes:
        inserts_refused: "" or why it wants no inserts: "disk_full", "memory_full", "busy".
        hand_over: so little room is left that this broker should lead nothing.
    """

    inserts_refused: str
    hand_over: bool


class Store(Protocol):
    """Everything that a broker keeps. No thread or clock of its own.

    Attributes:
        store_id: 16 hex digits, drawn when the store was begun: to the mesh, the identity of its contents. A store
            that has lost its contents has a new one, and so is a stranger that catches up from the others.
        set_aside: why an older store in the same place was put aside, "" if none was.
        upgraded: the format that it had before it was opened, "" if that was the present one.
    """

    store_id: str
    set_aside: str
    upgraded: str

    def bind_cluster(self, cluster_id: str) -> None:
        """Note which mesh the store belongs to, once that is known.

        Raises:
            InvalidRequest: it belongs to another cluster.
        """
        ...

    def recover(self) -> list[RecoveredPartition]:
        """Return every replica, verified; called once, before anything else."""
        ...

    def commit(self, writes: Sequence[StoreWrite]) -> None:
        """Carry out one group of writes, in order; durable when this returns.

        Raises:
            StoreFailed: the machine refused. The store takes no more writes until it is opened again.
        """
        ...

    def read(self, request: StoreRead) -> StoreReadDone | None:
        """Answer a read; None for those that have no answer.

        Raises:
            StoreFailed: the store cannot be read.
        """
        ...

    def expire_snapshots(self, mono_us: int) -> None:
        """Close snapshots that nobody has read from for `SNAPSHOT_IDLE_MS`; called every few seconds.

        Args:
            mono_us: the monotonic clock.
        """
        ...

    def pressure(self) -> Pressure:
        """Return how full the store is; called before commits, up to a hundred times a second."""
        ...

    def wiping(self) -> frozenset[int]:
        """Return the partitions of which old rows are left; called after commits, by the thread that commits."""
        ...

    def release_reserve(self) -> None:
        """Give up the reserve for the time when the store is full, so that it can be opened again."""
        ...

    def close(self) -> None:
        """Close it; nothing may be called afterwards."""
        ...

"""A broker's statements to its peers must be true of its disk: looked up there, at the instant of the statement.

A replica that acks a record has synced it, in the epoch of the ack, with every chunk that it names. A leader sends
nothing in an epoch that its disk does not know. It counts no replica for a record that the replica's disk does not
hold. A loss that such a word would allow needs a crash at the right moment; the word itself is wrong without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dueq import limits
from dueq.core.partition.partition import Partition
from dueq.storage.ordered import layout
from dueq_chaos.sim.judging.history import name_of
from dueq_chaos.sim.judging.ledger import Ledger
from dueq_codecs.frames import decode_record
from dueq_codecs.messages import Ack, PeerFrame, Push
from dueq_codecs.records import NO_U64, RecordKind

if TYPE_CHECKING:
    from dueq_chaos.sim.environment.mesh import SimMesh
    from dueq_chaos.sim.environment.node import Node

_HALF_MS = 2
"""How much a lease may be short of its half, for rounding and for the turn of the loop."""
_RECORDS_MAX = 8
"""Number of the last records covered by an ack that are looked up."""


class Promises:
    """Compares words with disks."""

    def __init__(self, mesh: SimMesh, ledger: Ledger) -> None:
        self._mesh, self._ledger = mesh, ledger
        self._counted: dict[tuple[str, int, int, str, int], int] = {}
        """(leader, partition, epoch, follower, its incarnation) -> what it counts for."""
        self._gathered: dict[tuple[int, int, int], tuple[int, int]] = {}
        """(partition, message, token) -> epoch and last record of the leader with which an ack of it began to wait."""

    # -------------------------------------------------------------- what a broker says

    def broken_by(self, node: Node, frame: PeerFrame) -> str:
        """Return what is not true of a frame that leaves; "" when all of it is."""
        if node.core is None:
            return ""
        for ack in frame.acks:
            partition = node.core.partition(ack.uid)
            if partition is not None and (wrong := self._acked(node, partition, ack)):
                return f"acks p{ack.uid} up to {ack.sequence} in epoch {ack.epoch}: {wrong}"
        for append in frame.appends:
            if (known := self._epoch(node, append.uid)) < append.epoch:
                return f"leads p{append.uid} in epoch {append.epoch}, and its disk knows {known}"
        for chunk in frame.upload_acks:
            key = layout.chunk_key(chunk.uid, chunk.upload, chunk.chunk)
            if node.disk.payload.get(key) is None:
                return f"acks chunk {chunk.chunk} of upload {chunk.upload}, which is not on its disk"
        return ""

    def _epoch(self, node: Node, uid: int) -> int:
        meta = node.disk.timeline.get(layout.head(uid, b"M"))
        return 0 if meta is None else int(layout.META.unpack(meta)[0])

    def _acked(self, node: Node, partition: Partition, ack: Ack) -> str:
        disk, uid = node.disk, partition.uid
        if (known := self._epoch(node, uid)) < ack.epoch:
            return f"its disk knows epoch {known}"
        if ack.sequence and disk.record(uid, ack.sequence) is None and disk.trimmed_to(uid) <= ack.sequence:
            return "that record is not on its disk"
        log = partition.replica.log
        for sequence in range(max(ack.sequence - _RECORDS_MAX, 0) + 1, ack.sequence + 1):
            entry = log.get(sequence)
            if entry is None or not len(entry.record.upload):
                continue
            pairs = zip(entry.record.upload.tolist(), entry.record.size.tolist(), strict=False)
            for upload, size in pairs:
                lacks = upload and self._lacks(node, uid, upload, size)
                if lacks and disk.trimmed_to(uid) <= sequence and sequence > partition.timeline.applied:
                    return f"record {sequence} names upload {upload}, of which chunks are not on its disk"
        return ""

    @staticmethod
    def _lacks(node: Node, uid: int, upload: int, size: int) -> bool:
        payload = node.disk.payload
        chunks = -(-size // limits.CHUNK_BYTES)
        return any(payload.get(layout.chunk_key(uid, upload, chunk)) is None for chunk in range(chunks))

    # -------------------------------------------------------------- whom a leader counts

    def miscounted(self, node: Node, partition: Partition) -> str:
        """Return whom the present leader of a partition counts for what his disk does not hold; "" for nobody."""
        leading, uid = partition.replica.leading, partition.uid
        found = self._mesh.coordinator.nodes.get(uid)
        if leading is None or found is None or found[1].epoch != leading.epoch:
            return ""
        for name, progress in leading._progress.items():
            match, key = progress.match, (node.name, uid, leading.epoch, name, progress.incarnation)
            if match <= self._counted.get(key, 0):
                continue
            self._counted[key] = match
            if wrong := self._differs(partition, name, match, progress.store_id):
                return (
                    f"counts {name} for the records up to {match} of p{uid}, epoch {leading.epoch}: {wrong}"
                )
        return ""

    def _differs(self, partition: Partition, follower: str, match: int, store_id: str) -> str:
        """Look on the disk that the leader means: it may read an ack, and count it, when that disk is lost already.

        No broker can know better before it hears of the loss. A statement that the lost disk did not hold is wrong
        even so.
        """
        uid, holder = partition.uid, self._mesh.nodes[follower]
        own, disk = partition.replica.log.get(match), holder.disk
        if own is None or disk.is_damaged(uid):
            return ""
        is_lost = disk.store_id != store_id
        other = holder.core.partition(uid) if holder.core is not None and not is_lost else None
        if other is not None and (other.replica.installing or other.replica.epoch > partition.replica.epoch):
            return ""  # it was started again since, or follows another leader
        held = disk.record(uid, match, store_id)
        if held is None:
            return "" if disk.trimmed_to(uid, store_id) > match else "that record is not on his disk"
        epoch = other.replica.log.epoch_at(match) if other is not None else decode_record(held).epoch
        if epoch not in (None, own.record.epoch):
            return f"he holds a record of epoch {epoch} there"
        return ""

    # -------------------------------------------------------------- leases

    def too_little_left(self, push: Push) -> str:
        """Return which row of a push has less than half of its lease left; "" when all have enough."""
        for uid in dict.fromkeys(push.uid.tolist()):
            at = np.flatnonzero(push.uid == uid)
            keys = (push.sequence[at] << np.uint64(16)) | push.row[at]
            rows = self._ledger.reference(uid).rows(keys)
            same = rows["token"] == push.token[at]
            short = same & (push.lease_left_ms[at] * 2 + _HALF_MS < rows["lease_ms"])
            for row in at[short].tolist()[:1]:
                left, key = int(push.lease_left_ms[row]), (uid, int(push.sequence[row]), int(push.row[row]))
                return f"{name_of(key)} with {left} ms left of its lease, less than half"
        return ""

    def gathered(self, partition: Partition) -> None:
        """Note the acks that wait at a leader for company, where there are some."""
        uid = partition.uid
        for item in partition._proposals._queue:
            request = item.request
            if request.kind == RecordKind.ACK:
                keys = (request.target_sequence << np.uint64(16)) | request.target_row
                for key, token in zip(keys.tolist(), request.token.tolist(), strict=True):
                    since = (partition.replica.epoch, partition.replica.log.end)
                    self._gathered.setdefault((uid, key, token), since)

    def overtaken(self, uid: int, sequence: int) -> str:
        """Return which ack, that waited with the leader of a committed EXPIRE, it has overtaken; "" for none."""
        record = self._ledger.record(uid, sequence) if self._gathered else None
        if record is None or record.kind not in (RecordKind.EXPIRE, RecordKind.ACK):
            return ""
        keys = (record.target_sequence << np.uint64(16)) | record.target_row
        tokens = record.token if len(record.token) else NO_U64
        for key, token in zip(keys.tolist(), tokens.tolist(), strict=False):
            epoch, end = self._gathered.pop((uid, key, token), (0, 0))
            if epoch == record.epoch and end < sequence and record.kind == RecordKind.EXPIRE:
                return f"the EXPIRE {sequence} ends a lease of which an ack waited with the leader"
        return ""

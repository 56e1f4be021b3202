"""Where the bytes of shared bodies must be, and must not be any more.

A body is on a replica's disk while, and only while, a message names it, or its grace lasts, or the log still holds the
record that brought it.
"""

from __future__ import annotations

from collections.abc import Iterable

from dueq.core.partition.partition import Partition
from dueq.core.state.timeline import Timeline
from dueq.storage.ordered import layout
from dueq.storage.ordered.store import OrderedStore


def misplaced(
    store: OrderedStore, partition: Partition, reference: Timeline, brought: Iterable[int]
) -> list[str]:
    """Return which bodies a replica's disk lacks, or should not have.

    Args:
        store: of the replica.
        partition: the replica, which has applied what the reference has.
        reference: the state.
        brought: the sequences of all records that brought a body.
    """
    uid, kept = partition.uid, reference.bodies.by_number
    # A member whose disk is new applies in the turn in which it appends: its disk has that a little later.
    lacks = [number for number in kept if number <= partition.replica.synced and not _has(store, uid, number)]
    wrong = [f"the shared bodies {lacks} are not on the disk"] if lacks else []
    log, unlisted = store._logs.get(uid), partition.timeline._live.finished_count
    start = log.start if log is not None else 0  # a new partition: nothing was written yet
    gone = [number for number in brought if number not in kept and number < start]
    listed = {_sequence(key) for key in _garbage(store, uid)}
    stays = [number for number in gone if _has(store, uid, number) and number not in listed]
    if stays and not unlisted and partition.timeline._saving is None:
        wrong.append(f"the shared bodies {stays} are still on the disk, and nothing lists them as garbage")
    return wrong


def _has(store: OrderedStore, uid: int, number: int) -> bool:
    return store._payload.get(layout.block_key(uid, number, 0)) is not None


def _garbage(store: OrderedStore, uid: int) -> Iterable[bytes]:
    first = layout.head(uid, b"g")
    return store._timeline.keys(first, layout.after(first))


def _sequence(key: bytes) -> int:
    return int.from_bytes(key[4:9], "big")

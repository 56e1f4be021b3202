"""What a checkpoint says is over leaves no row, so that no later opening takes it for something that still is."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.storage.ordered.disk import UID, Disk, barrier, entries, insert

from dueq.core.ports.entry import FULL, Entries, State, keys_of, widened
from dueq.core.ports.persistence import (
    AppendLog,
    PageRead,
    ReadPage,
    ReadRemark,
    ReadSnapshot,
    RemarkRead,
    SaveCheckpoint,
    SnapshotRead,
)
from dueq.storage.ordered import layout

KEY = 1 << 16


@pytest.fixture
def disk() -> Disk:
    """A log of three records, the last of another epoch."""
    disk = Disk()
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"]), barrier(2, 1), barrier(3, 4)])])
    return disk


def message(state: State) -> Entries:
    row = widened(entries((1, 0, 2_000)), FULL.itemsize)
    row["state"] = state
    return row


def tags(disk: Disk) -> set[bytes]:
    """The kinds of rows that the partition has, beside those of its log and its checkpoint."""
    return {key[3:4] for key in disk.timeline.keys(*layout.whole(UID))} - {b"L", b"P", b"C"}


def test_a_lease_that_has_ended_is_not_recovered(disk: Disk) -> None:
    leased = message(State.LEASED)
    disk.store.commit([SaveCheckpoint(UID, 1, 0, put=leased)])
    assert len(disk.open().recover()[0].leased) == 1
    disk.store.commit([SaveCheckpoint(UID, 2, 0, unlease=keys_of(leased))])
    assert len(disk.open().recover()[0].leased) == 0
    assert tags(disk) == set()


def test_a_dead_message_that_was_discarded_is_nowhere(disk: Disk) -> None:
    dead = message(State.DEAD)
    dead["died_at"] = 5_000
    disk.store.commit([SaveCheckpoint(UID, 1, 0, put=dead, remarks=[(KEY, "no such customer")])])
    undie = np.array([[5_000, KEY]], np.uint64)
    disk.store.commit([SaveCheckpoint(UID, 2, 0, undie=undie, remarks=[(KEY, None)])])
    page = disk.store.read(ReadPage(1, UID, 1, True, 0, 0, (0, 0), 9, 9, False, dead=True))
    assert isinstance(page, PageRead)
    assert len(page.entries) == 0
    assert tags(disk) == set()


def test_a_reason_is_told_until_a_checkpoint_takes_it_away(disk: Disk) -> None:
    told = []
    reasons: tuple[str | None, ...] = ("busy", "", None)
    for reason in reasons:
        disk.store.commit([SaveCheckpoint(UID, 1, 0, remarks=[(KEY, reason)])])
        found = disk.store.read(ReadRemark(1, UID, KEY))
        assert isinstance(found, RemarkRead)
        told.append(found.text)
    assert told == ["busy", "", ""]
    assert tags(disk) == set()


@pytest.mark.parametrize("wait_at", [1_000, 2_000], ids=["as scheduled", "moved"])
def test_a_message_with_a_class_that_has_ended_leaves_no_row(disk: Disk, wait_at: int) -> None:
    of = np.array([[7, 3]], np.uint8)
    disk.store.commit([SaveCheckpoint(UID, 1, 0, put=entries((1, 0, wait_at)), put_of=of)])
    assert tags(disk) == {b"i", b"o"}
    gone = np.array([[wait_at, KEY, 1_000]], np.uint64)
    disk.store.commit([SaveCheckpoint(UID, 2, 0, unwait=gone, unwait_of=of)])
    assert tags(disk) == set()


@pytest.mark.parametrize(("applied", "epoch"), [(1, 1), (2, 1), (3, 4)])
def test_a_snapshot_tells_the_epoch_of_the_record_up_to_which_it_goes(
    disk: Disk, applied: int, epoch: int
) -> None:
    """The log may end in a later epoch. A follower that took that one would refuse the leader's next record."""
    disk.store.commit([SaveCheckpoint(UID, applied, 0)])
    found = disk.store.read(ReadSnapshot(1, UID, 0, 0, 1 << 20))
    assert isinstance(found, SnapshotRead)
    assert (found.applied, found.applied_epoch) == (applied, epoch)

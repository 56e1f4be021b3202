"""Unique keys that are remembered for a while: which are to be forgotten, and when the next one is."""

from __future__ import annotations

from tests.unit.storage.ordered.disk import UID, Disk, insert

from dueq.core.ports.names import Remembered, expiry_key, pack_name
from dueq.core.ports.persistence import AppendLog, ExpiredRead, ReadExpired, SaveCheckpoint


def test_of_keys_that_are_not_forgotten_yet_the_soonest_says_when_to_look_again() -> None:
    """With a later one all keys before it would stay taken for longer than the topic says."""
    disk = Disk()
    untils = [(until, bytes([until]) * 16) for until in (10, 20, 30, 40)]
    names = [(digest, pack_name(Remembered(7, 8, 9, 10, 11, until))) for until, digest in untils]
    index: list[tuple[bytes, bytes | None]] = [(expiry_key(*each), b"") for each in untils]
    disk.store.commit(
        [AppendLog(UID, [insert(1, [b"x"])]), SaveCheckpoint(UID, 1, 10, names=[*names], remembered=index)]
    )
    for before, limit, count, following in [(15, 9, 1, 20), (50, 2, 2, 30), (5, 9, 0, 10), (50, 4, 4, None)]:
        read = disk.store.read(ReadExpired(1, UID, before, limit))
        assert isinstance(read, ExpiredRead)
        assert (read.expired, read.following) == (untils[:count], following)

"""Bytes that a disk has changed are noticed when they are read, wherever that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dueq.storage.ordered.engine import EngineDamaged
from dueq.storage.ordered.leveldb import LevelDbEngine

ROWS = 6_000


def key(number: int) -> bytes:
    return b"%08d" % number


def flip(folder: Path) -> None:
    """Change one byte in the middle of the largest table."""
    table = max(folder.glob("*.ldb"), key=lambda file: file.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(data)


@pytest.fixture
def damaged(tmp_path: Path) -> LevelDbEngine:
    """A database of which one byte of one value is not what was written."""
    engine = LevelDbEngine(tmp_path, write_buffer_bytes=4 << 20)
    engine.write([(key(number), bytes(400)) for number in range(ROWS)], sync=True)
    engine.close()
    LevelDbEngine(tmp_path, write_buffer_bytes=4 << 20).close()  # moves LevelDB's log into a table
    flip(tmp_path)
    return LevelDbEngine(tmp_path, write_buffer_bytes=4 << 20)


@pytest.mark.parametrize("of", ["engine", "snapshot"])
def test_a_changed_byte_is_damage_to_every_way_of_reading(damaged: LevelDbEngine, of: str) -> None:
    """LevelDB checks blocks in compactions only, unless it is told to; a row was taken for what it had never been."""
    reader = damaged if of == "engine" else damaged.snapshot()
    lost = 0
    for number in range(ROWS):
        try:
            assert reader.get(key(number)) == bytes(400)
        except EngineDamaged:
            lost += 1
    assert 0 < lost < 20, "the rows of one block"
    with pytest.raises(EngineDamaged, match="checksum"):
        list(reader.scan(b"", b"\xff"))
    with pytest.raises(EngineDamaged, match="checksum"):
        list(reader.keys(b"", b"\xff"))
    if of == "snapshot":
        with pytest.raises(EngineDamaged, match="checksum"):
            damaged.snapshot().get_many([key(number) for number in range(ROWS)])
    damaged.close()

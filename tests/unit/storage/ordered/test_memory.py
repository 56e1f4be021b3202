"""The engine in memory: its snapshots against plain copies, and its bound."""

from __future__ import annotations

import gc
import tracemalloc
from random import Random

import pytest

from dueq import limits
from dueq.storage.ordered.engine import Operation
from dueq.storage.ordered.memory import MemoryEngine
from dueq.storage.ordered.room import MemoryRoom
from dueq.storage.port import Pressure, StoreFailed


def _random_batch(random: Random, keys: int) -> list[Operation]:
    return [
        (b"%05d" % random.randrange(keys), None if random.random() < 0.4 else random.randbytes(3))
        for _ in range(random.randint(1, 200))
    ]


@pytest.mark.parametrize("seed", range(4))
def test_snapshots_are_what_copies_would_be(seed: int) -> None:
    random, engine = Random(seed), MemoryEngine()
    present: dict[bytes, bytes] = {}
    open_ones = []
    for _ in range(120):
        batch = _random_batch(random, 1_500)
        engine.write(batch, sync=True)
        for key, value in batch:
            present.pop(key, None)
            if value is not None:
                present[key] = bytes(value)
        if random.random() < 0.2:
            open_ones.append((engine.snapshot(), dict(present)))
        if open_ones and random.random() < 0.1:
            open_ones.pop(random.randrange(len(open_ones)))[0].close()
        key = b"%05d" % random.randrange(1_500)
        start, stop = sorted((b"%05d" % random.randrange(1_500), b"%05d" % random.randrange(1_500)))
        for view, rows in [(engine, present), *open_ones]:
            wanted = sorted(item for item in rows.items() if start <= item[0] < stop)
            assert view.get(key) == rows.get(key)
            assert list(view.scan(start, stop)) == wanted
            assert list(view.keys(start, stop)) == [found for found, _ in wanted]
            limit = random.randrange(600)
            assert list(view.scan(start, stop, limit)) == wanted[:limit]


def test_a_scan_shows_one_state_although_rows_are_written_meanwhile() -> None:
    engine = MemoryEngine()
    rows = [(b"%05d" % number, b"old") for number in range(2_000)]
    engine.write(list(rows), sync=True)
    scan = engine.scan(b"", b"z")
    begun = [next(scan) for _ in range(3)]
    engine.write([(key, None if number % 2 else b"new") for number, (key, _) in enumerate(rows)], sync=True)
    engine.write([(b"00500x", b"new")], sync=True)
    assert begun + list(scan) == rows


def test_a_scan_that_nobody_reads_to_its_end_gives_its_snapshot_up() -> None:
    engine = MemoryEngine()
    engine.write([(b"%05d" % number, b"") for number in range(1_000)], sync=True)
    scan = engine.scan(b"", b"z")
    assert len(engine._snapshots) == 1
    del scan
    gc.collect()
    assert not engine._snapshots


def test_what_it_counts_is_about_what_it_takes() -> None:
    room = MemoryRoom()
    engine = MemoryEngine(room)
    random = Random(1)
    tracemalloc.start()
    try:
        engine.write([(random.randbytes(17), random.randbytes(88)) for _ in range(30_000)], sync=True)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.9 * taken < room.used < 1.5 * taken


def test_what_is_deleted_and_replaced_is_counted_no_more() -> None:
    room = MemoryRoom()
    engines = MemoryEngine(room), MemoryEngine(room)
    for engine in engines:
        engine.write([(b"a", b"1" * 100), (b"b", b"2"), (b"a", b"3"), (b"gone", None)], sync=True)
    assert room.used > 0
    for engine in engines:
        engine.write([(b"a", None), (b"b", None)], sync=True)
    assert room.used == 0


def test_a_full_store_takes_no_batch_that_puts_something_and_any_that_deletes() -> None:
    engine = MemoryEngine(MemoryRoom(1_000))
    engine.write([(b"a", b"x" * 700)], sync=True)
    with pytest.raises(StoreFailed, match="full: it holds 845 bytes and may hold 1000"):
        engine.write([(b"a", None), (b"b", b"y" * 200)], sync=True)
    assert engine.get(b"a") == b"x" * 700
    engine.write([(b"a", None)], sync=True)
    engine.write([(b"b", b"y" * 200)], sync=True)


@pytest.mark.parametrize(
    ("free", "pressure"),
    [
        (limits.MEMORY_LOW_SHARE + 0.01, Pressure("", False)),
        (limits.MEMORY_LOW_SHARE - 0.01, Pressure("memory_full", False)),
        (limits.MEMORY_CRITICAL_SHARE - 0.01, Pressure("memory_full", True)),
        (-0.1, Pressure("memory_full", True)),
    ],
)
def test_inserts_stop_before_leaderships_and_both_before_it_is_full(free: float, pressure: Pressure) -> None:
    assert MemoryRoom(1_000_000, int((1 - free) * 1_000_000)).pressure() == pressure

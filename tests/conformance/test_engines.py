"""One suite for every engine behind the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueq.storage.ordered.engine import Engine
from dueq.storage.ordered.leveldb import LevelDbEngine
from dueq.storage.ordered.memory import MemoryEngine
from dueq.storage.port import StoreFailed
from dueq_chaos.sim.environment.engine import ForgetfulEngine


@pytest.fixture(params=["leveldb", "memory", "forgetful"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    found: Engine
    if request.param == "leveldb":
        found = LevelDbEngine(tmp_path / "db", write_buffer_bytes=1 << 20)
    else:
        found = MemoryEngine() if request.param == "memory" else ForgetfulEngine()
    yield found
    found.close()


def put(engine: Engine, *keys: bytes) -> None:
    engine.write([(key, b"value of " + key) for key in keys], sync=True)


def test_what_was_put_is_got_and_what_was_not_is_none(engine: Engine) -> None:
    put(engine, b"a")
    assert engine.get(b"a") == b"value of a"
    assert engine.get(b"b") is None


def test_a_scan_is_in_order_of_bytes_and_leaves_out_its_end(engine: Engine) -> None:
    put(engine, b"\xff", b"b", b"a\0", b"a", b"c")
    assert [key for key, _ in engine.scan(b"a", b"c")] == [b"a", b"a\0", b"b"]
    assert list(engine.keys(b"b", b"\xff\xff")) == [b"b", b"c", b"\xff"]


def test_a_scan_can_be_limited(engine: Engine) -> None:
    put(engine, b"a", b"b", b"c")
    assert list(engine.scan(b"a", b"z", limit=2)) == [(b"a", b"value of a"), (b"b", b"value of b")]
    assert list(engine.scan(b"a", b"z", limit=0)) == []


def test_operations_of_one_batch_take_effect_in_order(engine: Engine) -> None:
    put(engine, b"a")
    engine.write(
        [(b"a", None), (b"b", b"1"), (b"b", None), (b"c", b"1"), (b"c", b"2"), (b"a", b"new")], sync=True
    )
    assert list(engine.scan(b"a", b"z")) == [(b"a", b"new"), (b"c", b"2")]


def test_a_delete_of_what_is_not_there_is_nothing(engine: Engine) -> None:
    engine.write([(b"nothing", None)], sync=False)
    assert list(engine.keys(b"", b"z")) == []


def test_values_may_be_views(engine: Engine) -> None:
    data = bytearray(b"0123456789")
    engine.write([(b"a", memoryview(data)[2:5])], sync=True)
    data[:] = b"x" * 10
    assert engine.get(b"a") == b"234"


def test_empty_and_large_values_come_back_as_they_were(engine: Engine) -> None:
    large = bytes(range(256)) * 4_096
    engine.write([(b"empty", b""), (b"large", large)], sync=True)
    assert (engine.get(b"empty"), engine.get(b"large")) == (b"", large)


def test_a_snapshot_stays_as_it_was(engine: Engine) -> None:
    put(engine, b"a", b"b")
    snapshot = engine.snapshot()
    engine.write([(b"a", None), (b"b", b"changed"), (b"c", b"new")], sync=True)
    assert list(snapshot.scan(b"a", b"z")) == [(b"a", b"value of a"), (b"b", b"value of b")]
    assert list(snapshot.keys(b"a", b"z")) == [b"a", b"b"]
    assert snapshot.get(b"c") is None
    snapshot.close()
    assert list(engine.keys(b"a", b"z")) == [b"b", b"c"]


def test_the_simulated_engine_forgets_what_was_not_synced() -> None:
    engine = ForgetfulEngine()
    engine.write([(b"a", b"1")], sync=True)
    engine.write([(b"a", b"2")], sync=False)
    engine.write([(b"a", None), (b"b", b"1")], sync=False)
    assert engine.unsynced == 2
    engine.crash(keep=1)
    assert list(engine.scan(b"a", b"z")) == [(b"a", b"2")]


def test_a_simulated_engine_that_has_failed_fails() -> None:
    engine = ForgetfulEngine()
    engine.fail_next = True
    with pytest.raises(StoreFailed):
        engine.write([(b"a", b"1")], sync=True)

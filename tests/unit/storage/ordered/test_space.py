"""How full the disk may be: the marks below which a broker takes no inserts, and leads nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.unit.storage.ordered.disk import Disk

from dueq import limits
from dueq.storage.ordered.space import LEVEL0_BUSY, Buffers, Space, judge
from dueq.storage.port import Pressure


class Usage(NamedTuple):
    """Of a disk, bytes."""

    total: int
    free: int


def pressure(folder: Path, patch: pytest.MonkeyPatch, total: int, free: int) -> Pressure:
    patch.setattr(shutil, "disk_usage", lambda _: Usage(total, free))
    return Space(folder).pressure()


@pytest.mark.parametrize("total", [64 << 20, 8 << 30, 4 << 40], ids=["tiny", "small", "large"])
def test_inserts_stop_first_and_then_leadership_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int
) -> None:
    """What is between the marks is enough for what acks, cancels and compactions write before they delete."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total, total))
    space = Space(tmp_path)
    low, critical = space.low_mark(total), space.critical_mark(total)
    assert low - critical >= min(2 * sum(Buffers.on(tmp_path)), total // 4)
    assert critical <= limits.DISK_CRITICAL_BYTES
    expected = [
        (low, Pressure("", False)),
        (low - 1, Pressure("disk_full", False)),
        (critical, Pressure("disk_full", False)),
        (critical - 1, Pressure("disk_full", True)),
    ]
    assert [(free, pressure(tmp_path, monkeypatch, total, free)) for free, _ in expected] == expected


def test_no_reserve_is_made_that_would_stop_inserts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total = 8 << 30
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total, total))
    space = Space(tmp_path)
    low, ballast = space.low_mark(total), int(min(total * limits.BALLAST_SHARE, limits.BALLAST_BYTES))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total, low + ballast - 1))
    space.make_ballast()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes of an empty disk that is small for a store."""
    total = 64 << 20
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total, total))
    return total


def test_the_reserve_is_a_small_share_of_a_small_disk(tmp_path: Path, tiny: int) -> None:
    Space(tmp_path).make_ballast()
    assert (tmp_path / "ballast").stat().st_size == int(tiny * limits.BALLAST_SHARE)


def test_a_reserve_that_is_there_is_not_made_anew(tmp_path: Path, tiny: int) -> None:
    (tmp_path / "ballast").write_bytes(b"reserve")
    Space(tmp_path).make_ballast()
    assert (tmp_path / "ballast").read_bytes() == b"reserve"


@pytest.mark.parametrize("spare", [5, 0, -5])
def test_what_may_be_written_ends_where_inserts_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare: int
) -> None:
    total = 8 << 30
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total, total))
    low = Space(tmp_path).low_mark(total)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total, low + spare))
    assert Space(tmp_path).spare_bytes() == spare
    assert Space(tmp_path).pressure().inserts_refused == ("disk_full" if spare < 0 else "")


def test_an_empty_disk_takes_inserts_however_small_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What compactions need is more than all of it."""
    total = 16 << 20
    assert pressure(tmp_path, monkeypatch, total, total) == Pressure("", False)


@pytest.mark.parametrize(
    ("total", "payload"), [(1 << 20, 1 << 20), (256 << 20, 4 << 20), (4 << 40, 16 << 20)]
)
def test_buffers_grow_with_the_disk_between_two_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, payload: int
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total, total))
    assert Buffers.on(tmp_path) == Buffers(2 * payload, payload)


def test_the_buffers_of_brokers_are_not_full_at_once() -> None:
    """Replicas get the same rows: with equal buffers all of a partition would be written down together."""
    whole = Buffers(32 << 20, 16 << 20)
    each = [whole.of(f"b{number}") for number in range(1, 10)]
    assert len(set(each)) == len(each)
    for buffers in each:
        assert whole.timeline // 2 < buffers.timeline <= whole.timeline
        assert whole.payload // 2 < buffers.payload <= whole.payload


@pytest.mark.parametrize("database", ["timeline", "payload"])
def test_a_store_is_busy_if_either_database_is(monkeypatch: pytest.MonkeyPatch, database: str) -> None:
    disk = Disk()
    monkeypatch.setattr(getattr(disk, database), "level0_files", lambda: LEVEL0_BUSY)
    assert disk.open().pressure() == Pressure("busy", False)


def test_a_full_disk_matters_more_than_compactions_that_lag() -> None:
    class Full:
        """A room."""

        def pressure(self) -> Pressure:
            return Pressure("disk_full", True)

    assert judge(LEVEL0_BUSY - 1, None) == Pressure("", False)
    assert judge(LEVEL0_BUSY, None) == Pressure("busy", False)
    assert judge(LEVEL0_BUSY, Full()) == Pressure("disk_full", True)

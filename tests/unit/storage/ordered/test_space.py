"""How full the disk may be: the marks below which a broker takes no inserts, and leads nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

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


def test_a_full_disk_matters_more_than_compactions_that_lag() -> None:
    class Full:
        """A room."""

        def pressure(self) -> Pressure:
            return Pressure("disk_full", True)

    assert judge(LEVEL0_BUSY - 1, None) == Pressure("", False)
    assert judge(LEVEL0_BUSY, None) == Pressure("busy", False)
    assert judge(LEVEL0_BUSY, Full()) == Pressure("disk_full", True)

"""Small disks and false clocks are what they say; skipped, with the reason, where the machine does not allow them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dueq_chaos.nemesis import machine
from dueq_chaos.nemesis.broker import FalseClock, SmallDisk

_NO_DISKS, _NO_CLOCKS = machine.no_small_disks(), machine.no_clocks()


@pytest.mark.skipif(bool(_NO_DISKS), reason=_NO_DISKS)
def test_a_small_disk_fills_to_a_share_and_to_the_last_byte_and_empties_again(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk", "b1", 4 << 20)
    try:
        disk.fill(0.5)
        assert shutil.disk_usage(disk.folder).free == pytest.approx(2 << 20, abs=1 << 17)
        disk.fill(0)
        with pytest.raises(OSError, match="No space left"):
            disk.data.write_bytes(bytes(8192))
        disk.empty()
        assert shutil.disk_usage(disk.folder).free > 3 << 20
    finally:
        disk.unmount()
    assert not list(disk.folder.iterdir())


def _times(clock: FalseClock) -> tuple[float, float]:
    """What a process with this clock reads: wall clock and monotonic clock."""
    done = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time(), time.monotonic())"],
        env=os.environ | clock.variables, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    wall, monotonic = done.stdout.split()
    return float(wall), float(monotonic)


@pytest.mark.skipif(bool(_NO_CLOCKS), reason=_NO_CLOCKS)
@pytest.mark.parametrize("ahead_s", [0.0, 3600.0, -3600.0, -0.3])
def test_a_false_clock_is_as_far_off_as_it_was_set_and_leaves_the_monotonic_one_alone(
    tmp_path: Path, ahead_s: float
) -> None:
    clock = FalseClock(tmp_path, "b1")
    clock.set(ahead_s)
    before = time.time(), time.monotonic()
    wall, monotonic = _times(clock)
    after = time.time(), time.monotonic()
    assert before[0] <= wall - ahead_s + 0.002
    assert wall - ahead_s <= after[0] + 0.002
    assert before[1] <= monotonic <= after[1]


def test_what_is_impossible_is_named_with_its_reason() -> None:
    reasons = {"clocks": "libfaketime is not installed", "wires": ""}
    needs = {"kill": "", "cut": "wires", "clock": "clocks"}
    assert machine.impossible_kinds(reasons, needs) == {"clock": "libfaketime is not installed"}

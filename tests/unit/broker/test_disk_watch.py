"""When a broker takes its disk for one that does not answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
import structlog
from structlog.testing import LogCapture

from dueq.broker.disk_watch import DiskWatch, bytes_written

SECOND_US = 1_000_000


def watch(timeout_s: int, written: Callable[[], int] = lambda: 0) -> tuple[DiskWatch, LogCapture]:
    said = LogCapture()
    log = structlog.wrap_logger(None, processors=[said], wrapper_class=structlog.stdlib.BoundLogger)
    return DiskWatch(timeout_s * SECOND_US, log, written), said


def looks(watched: DiskWatch, commits: list[int], gap_us: int = SECOND_US) -> list[str]:
    return [watched.look(commit, at * gap_us) for at, commit in enumerate(commits)]


def test_a_commit_that_goes_on_for_too_long_ends_the_broker() -> None:
    watched, said = watch(30)
    *before, last = looks(watched, [7] * 31)
    assert set(before) == {""}
    assert last == "the disk has not answered for 30.0 s"
    assert [(line["event"], line["waited_s"]) for line in said.entries] == [("disk.slow", 5.0)]


def test_a_slow_disk_that_goes_on_taking_bytes_is_no_hang() -> None:
    watched, said = watch(30, count(0, 2_000_000).__next__)
    assert set(looks(watched, [7] * 3600)) == {""}
    assert [line["event"] for line in said.entries] == ["disk.slow"]


def test_lines_of_a_log_are_no_sign_of_life() -> None:
    watched, _ = watch(30, count(0, 300).__next__)
    assert looks(watched, [7] * 31)[-1]


def test_what_was_written_before_is_no_sign_of_life() -> None:
    watched, _ = watch(30, lambda: 10_000_000)
    assert looks(watched, [7] * 32)[-1]


def test_what_a_process_writes_is_counted(tmp_path: Path) -> None:
    if not os.major(tmp_path.stat().st_dev):
        pytest.skip("a file system that is on no disk")
    before = bytes_written()
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    assert bytes_written() - before >= 1 << 20


def test_commits_that_end_and_idle_times_are_no_hang() -> None:
    watched, said = watch(5)
    assert set(looks(watched, [*range(1, 100), *[0] * 100])) == {""}
    assert said.entries == []


def test_a_pause_of_the_whole_process_counts_as_one_look() -> None:
    watched, said = watch(5)
    assert looks(watched, [7, 7], gap_us=3600 * SECOND_US) == ["", ""]
    assert said.entries == []


def test_a_broker_that_is_alone_says_that_it_waits_and_goes_on() -> None:
    watched, said = watch(0)
    assert set(looks(watched, [7] * 3600)) == {""}
    looks(watched, [8] * 7)
    assert [line["event"] for line in said.entries] == ["disk.slow", "disk.slow"]

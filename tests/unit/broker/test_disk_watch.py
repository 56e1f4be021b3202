"""When a broker takes its disk for one that does not answer."""

from __future__ import annotations

import structlog
from structlog.testing import LogCapture

from dueq.broker.disk_watch import DiskWatch

SECOND_US = 1_000_000


def watch(timeout_s: int) -> tuple[DiskWatch, LogCapture]:
    said = LogCapture()
    log = structlog.wrap_logger(None, processors=[said], wrapper_class=structlog.stdlib.BoundLogger)
    return DiskWatch(timeout_s * SECOND_US, log), said


def looks(watched: DiskWatch, commits: list[int], gap_us: int = SECOND_US) -> list[str]:
    return [watched.look(commit, at * gap_us) for at, commit in enumerate(commits)]


def test_a_commit_that_goes_on_for_too_long_ends_the_broker() -> None:
    watched, said = watch(30)
    *before, last = looks(watched, [7] * 31)
    assert set(before) == {""}
    assert last == "the disk has not answered for 30.0 s"
    assert [(line["event"], line["waited_s"]) for line in said.entries] == [("disk.slow", 5.0)]


def test_commits_that_end_and_idle_times_are_no_hang() -> None:
    watched, said = watch(5)
    assert set(looks(watched, [*range(1, 100), *[0] * 100])) == {""}
    assert said.entries == []


def test_a_pause_of_the_whole_process_counts_as_one_look() -> None:
    watched, _ = watch(30)
    assert looks(watched, [7, 7], gap_us=3600 * SECOND_US) == ["", ""]


def test_a_broker_that_is_alone_says_that_it_waits_and_goes_on() -> None:
    watched, said = watch(0)
    assert set(looks(watched, [7] * 3600)) == {""}
    looks(watched, [8] * 7)
    assert [line["event"] for line in said.entries] == ["disk.slow", "disk.slow"]

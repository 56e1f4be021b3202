"""The statistics' file: kept over restarts, written seldom, and never a reason to stop."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from dueq.broker import statistics as statistics_file
from dueq.broker.statistics import NAME, StatisticsFile
from dueq.core.turn.statistics import HOUR_MS, Statistics

NOW_MS = 500_000 * HOUR_MS
CLIENT = b"c" * 16
MINUTE_US = 60_000_000


def opened(folder: Path | None) -> tuple[StatisticsFile, Statistics]:
    statistics = Statistics()
    return StatisticsFile(folder, statistics, structlog.get_logger()), statistics


def rows(statistics: Statistics) -> list[Any]:
    return list(statistics.document(0)["rows"])


def join(kept: StatisticsFile) -> None:
    assert kept._thread is not None
    kept._thread.join()


def test_a_restart_goes_on_counting_where_the_last_life_ended(tmp_path: Path) -> None:
    kept, statistics = opened(tmp_path)
    statistics.scheduled("t", CLIENT, 3, NOW_MS)
    statistics.scheduled("t", CLIENT, 1, NOW_MS + HOUR_MS)
    kept.close()
    again, found = opened(tmp_path)
    assert rows(found) == rows(statistics)
    found.scheduled("t", CLIENT, 4, NOW_MS)
    again.close()
    _, last = opened(tmp_path)
    assert [row["senders"] for row in rows(last)] == [{CLIENT.hex(): 7}, {CLIENT.hex(): 1}]
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_it_is_written_once_a_minute_and_only_when_something_was_counted(tmp_path: Path) -> None:
    kept, statistics = opened(tmp_path)
    statistics.scheduled("t", CLIENT, 3, NOW_MS)
    for second in range(60):
        kept.each_second(second * 1_000_000)
    assert not (tmp_path / NAME).exists()
    kept.each_second(MINUTE_US)
    join(kept)
    first = (tmp_path / NAME).stat()
    kept.each_second(2 * MINUTE_US)
    join(kept)
    assert (tmp_path / NAME).stat().st_ino == first.st_ino
    statistics.scheduled("t", CLIENT, 1, NOW_MS)
    kept.each_second(3 * MINUTE_US)
    join(kept)
    assert (tmp_path / NAME).stat().st_ino != first.st_ino
    assert rows(opened(tmp_path)[1])[0]["senders"] == {CLIENT.hex(): 4}


def test_hours_that_are_not_kept_leave_the_file(tmp_path: Path) -> None:
    kept, statistics = opened(tmp_path)
    statistics.scheduled("t", CLIENT, 1, NOW_MS)
    kept.close()
    statistics.scheduled("t", CLIENT, 1, NOW_MS + 9 * 24 * HOUR_MS)
    kept.close()
    assert len((tmp_path / NAME).read_bytes().splitlines()) == 2


@pytest.mark.parametrize("content", [b"", b"nonsense", b'{"format": 99}\n', b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_cannot_be_read_is_said_and_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with capture_logs() as said:
        kept, statistics = opened(tmp_path)
    assert [line["event"] for line in said] == ["statistics.not_read"]
    statistics.scheduled("t", CLIENT, 1, NOW_MS)
    kept.close()
    assert len(rows(opened(tmp_path)[1])) == 1


@pytest.mark.parametrize("hour", ["5", "Infinity"])
def test_a_damaged_line_costs_what_follows_it(tmp_path: Path, hour: str) -> None:
    kept, statistics = opened(tmp_path)
    statistics.scheduled("t", CLIENT, 1, NOW_MS)
    kept.close()
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"hour": %b, "topic": "t"}\n' % hour.encode())
    with capture_logs() as said:
        _, found = opened(tmp_path)
    assert [line["event"] for line in said] == ["statistics.not_read"]
    assert len(rows(found)) == 1


def test_what_cannot_be_written_is_said_and_tried_again(tmp_path: Path) -> None:
    kept, statistics = opened(tmp_path)
    statistics.scheduled("t", CLIENT, 1, NOW_MS)
    (tmp_path / "statistics.new").mkdir()
    with capture_logs() as said:
        kept.close()
    assert [line["event"] for line in said] == ["statistics.not_written"]
    (tmp_path / "statistics.new").rmdir()
    kept.close()
    assert len(rows(opened(tmp_path)[1])) == 1


def test_a_machine_that_gives_no_thread_is_said_and_costs_no_more_than_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error came up in the loop, and ended the broker."""

    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    kept, statistics = opened(tmp_path)
    statistics.scheduled("t", CLIENT, 1, NOW_MS)
    kept.each_second(0)
    with monkeypatch.context() as patched, capture_logs() as said:
        patched.setattr(Thread, "start", refuse)
        for second in range(60, 120):
            kept.each_second(second * 1_000_000)
    assert [line["event"] for line in said] == ["statistics.not_written"]
    kept.close()
    assert len(rows(opened(tmp_path)[1])) == 1


def test_a_disk_that_hangs_does_not_keep_a_broker_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told to end, and its ports stayed open until the disk answered."""
    monkeypatch.setattr(statistics_file, "_JOIN_S", 0.01)
    new = (tmp_path / NAME).with_suffix(".new")
    os.mkfifo(new)  # who opens it to write waits for a reader
    kept, statistics = opened(tmp_path)
    statistics.scheduled("t", CLIENT, 1, NOW_MS)
    kept.close()
    with new.open("rb") as reader:
        assert reader.read()
    join(kept)


def test_beside_a_store_in_memory_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept, statistics = opened(None)
    statistics.scheduled("t", CLIENT, 3, NOW_MS)
    kept.each_second(0)
    kept.each_second(MINUTE_US)
    kept.close()
    assert list(tmp_path.iterdir()) == []

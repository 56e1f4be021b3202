"""A log that cannot be written costs its lines, and nothing else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest
import structlog

from dueq.broker.logs import configure


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def full_disk() -> IO[str]:
    return Path("/dev/full").open("w", encoding="utf-8")


def pipe_that_nobody_reads() -> IO[str]:
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w", encoding="utf-8")


@pytest.mark.parametrize("broken", [full_disk, pipe_that_nobody_reads])
@pytest.mark.parametrize("form", ["json", "console"])
def test_a_broker_goes_on_when_its_log_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[], IO[str]], form: str
) -> None:
    """A full disk ended brokers whose log was on it, and the threads that had something to say."""
    stream = broken()
    monkeypatch.setattr(sys, "stderr", stream)
    log = configure("info", form, "b1")
    for _ in range(1_000):
        log.warning("store.pressure", reason="x" * 100)
    with suppress(OSError):
        stream.close()


def test_lines_are_said_again_when_there_is_room_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Log:
        full = False

        def __init__(self) -> None:
            self.file = (tmp_path / "log").open("w", encoding="utf-8")

        def write(self, text: str) -> int:
            if self.full:
                raise OSError("no room")
            return self.file.write(text)

        def flush(self) -> None:
            self.file.flush()

        def isatty(self) -> bool:
            return False

    stream = Log()
    monkeypatch.setattr(sys, "stderr", stream)
    log = configure("info", "json", "b1")
    log.info("one")
    stream.full = True
    log.info("two")
    stream.full = False
    log.info("three")
    assert [
        line.split('"event": "')[1].split('"')[0] for line in (tmp_path / "log").read_text().splitlines()
    ] == [
        "one",
        "three",
    ]
    stream.file.close()


def test_a_reader_that_stands_still_holds_nobody_up_and_gets_whole_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker whose log went to such a pipe, or to a terminal after Ctrl-S, served nobody and did not even stop."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as reader, os.fdopen(writing, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        log = configure("info", "json", "b1")
        for number in range(1_000):
            log.warning("store.pressure", reason="x" * 100, number=number)
        lines = [json.loads(line) for line in reader.read(1 << 20).splitlines()]
        assert [line["number"] for line in lines] == list(range(len(lines)))
        assert 0 < len(lines) < 1_000
        log.warning("store.pressure", reason="again")
        assert json.loads(reader.read(1 << 20))["reason"] == "again"

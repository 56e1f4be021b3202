"""One broker as a process: how it starts, what makes it end, with which exit code, and what it keeps."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any
from urllib.request import urlopen

import pytest

from dueq import Client
from dueq.errors import DueqError

pytestmark = pytest.mark.integration

_PATIENCE_S = 180.0


class Process:
    """`dueq broker` without ZooKeeper, on ports that the kernel chooses."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.log = data.parent / f"{data.name}-{len(list(data.parent.iterdir()))}.log"
        command = [
            sys.executable, "-m", "dueq.cli.main", "broker", "--id", "b1", "--no-zookeeper",
            "--data", str(data), "--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0",
            "--log-format", "json", *arguments,
        ]  # fmt: skip
        with self.log.open("xb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def lines(self) -> list[dict[str, Any]]:
        """The log lines that are complete."""
        whole = self.log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def line(self, event: str) -> dict[str, Any]:
        """The latest log line of an event; waits for one."""
        deadline, pause = time.monotonic() + _PATIENCE_S, Event()
        while True:
            ended = self.process.poll() is not None  # before the log is read: then it is complete
            found = [line for line in self.lines() if line["event"] == event]
            if found:
                return found[-1]
            assert time.monotonic() < deadline, self.log.read_text()
            assert not ended, self.log.read_text()
            pause.wait(0.02)

    def exit_code(self) -> int:
        """Wait for the end."""
        return self.process.wait(_PATIENCE_S)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[Process]:
    process = Process(data)
    yield process
    process.process.kill()
    process.process.wait()


def test_a_broker_says_where_it_is_and_ends_in_order_when_told_to(broker: Process) -> None:
    started = broker.line("broker.started")
    with Client(started["endpoint"]) as client:
        client.create_topic("t", partitions=1, replicas=1)
        assert [topic.name for topic in client.topics()] == ["t"]
    with urlopen(f"http://{started['metrics']}/metrics", timeout=_PATIENCE_S) as page:
        text = page.read().decode()
    assert "dueq_loop_turn_seconds_count" in text
    assert "process_open_fds" in text
    broker.process.send_signal(signal.SIGTERM)
    assert broker.exit_code() == 0
    assert broker.line("broker.stopped")["reason"] == "told to"


def test_an_address_that_is_taken_is_told_and_nothing_is_left_behind(data: Path, broker: Process) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken_port = taken.getsockname()[1]
        other = Process(data.with_name("other"), "--listen", f"tcp://127.0.0.1:{taken_port}")
        assert other.exit_code() == 1
        metrics = Process(data.with_name("third"), "--metrics", f"127.0.0.1:{taken_port}")
        assert metrics.exit_code() == 1
    endpoint = f"tcp://127.0.0.1:{taken_port}"
    assert (
        other.line("broker.not_started")["reason"] == f"cannot listen on {endpoint}: Address already in use"
    )
    assert metrics.line("broker.not_started")["reason"] == (
        f"cannot serve metrics on 127.0.0.1:{taken_port}: Address already in use"
    )
    assert not any(line["event"] == "broker.started" for line in metrics.lines())


def test_a_folder_has_one_broker(data: Path, broker: Process) -> None:
    broker.line("broker.started")
    second = Process(data)
    assert second.exit_code() == 1
    assert broker.process.poll() is None


def test_a_broker_that_may_open_no_more_files_goes_on(broker: Process) -> None:
    """Clients may take all files that there are. Until its store needs one, a broker needs none."""
    with Client(broker.line("broker.started")["endpoint"]) as client:
        client.create_topic("t", partitions=1, replicas=1)
        files = len(os.listdir(f"/proc/{broker.process.pid}/fd"))
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (files, files))
        with client.producer("t") as producer, client.consumer("t") as consumer:
            long = producer.schedule(os.urandom(200_000), 0)
            later = producer.schedule(b"x", timedelta(days=1))
            (message,) = consumer.receive(timeout=_PATIENCE_S)
            assert message.id == long
            consumer.ack([message])
            # Before a broker shows what waits, it makes a checkpoint.
            assert [waiting.id for waiting in client.browse("t")] == [later]
    broker.process.send_signal(signal.SIGTERM)
    assert broker.exit_code() == 0


def test_after_a_failed_write_the_broker_ends_and_loses_nothing_that_it_confirmed(
    data: Path, broker: Process
) -> None:
    """The disk refuses in the middle of a load: as when it is full, or broken."""
    endpoint = broker.line("broker.started")["endpoint"]
    confirmed: list[str] = []
    with Client(endpoint) as client:
        client.create_topic("t", partitions=1, replicas=1)
        with client.producer("t") as producer:
            confirmed += map(str, producer.schedule_many([b"x" * 1_000] * 100, 0, timeout=_PATIENCE_S))
            size = 1 << 20
            resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (size, size))
            try:
                while broker.process.poll() is None:
                    confirmed.append(str(producer.schedule(os.urandom(200_000), 0, timeout=3.0)))
            except DueqError:
                pass
    assert broker.exit_code() == 75
    assert "store.failed" in [line["event"] for line in broker.lines()]
    assert broker.line("broker.stopped")["exit_code"] == 75
    again = Process(data)
    try:
        got: list[str] = []
        with Client(again.line("broker.started")["endpoint"]) as client, client.consumer("t") as consumer:
            while not set(confirmed) <= set(got):
                batch = consumer.receive(max_messages=100, timeout=_PATIENCE_S)
                assert batch, f"{len(got)} of {len(confirmed)} came"
                got += [str(message.id) for message in batch]
                consumer.ack(batch)
        again.process.send_signal(signal.SIGINT)
        assert again.exit_code() == 0
    finally:
        again.process.kill()
        again.process.wait()

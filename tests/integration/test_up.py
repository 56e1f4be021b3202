"""`dueq up` as a user meets it: its lines, its file, its end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from dueq.ports import free_ports

pytestmark = pytest.mark.integration

READY_S = 180
END_S = 120


class Up:
    """A `dueq up` process of one broker without ZooKeeper, mostly without a gateway, which takes longest to start."""

    def __init__(self, data: Path, port: int, *more: str, gateway: bool = False) -> None:
        self.data, self.port = data, port
        command = ["up", "--brokers", "1", "--no-zookeeper", "--data", str(data), "--port", str(port), *more]
        if not gateway:
            command.append("--no-gateway")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dueq.cli.main", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    @property
    def endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def ready(self) -> str:
        """The first line that it prints."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], READY_S)[0], "no line in time"
        line = self.process.stdout.readline().strip()
        assert line, self.process.communicate(timeout=END_S)[1]
        return line

    def description(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.data / "mesh.json").read_text())
        return document

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=END_S)
        return self.process.returncode


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def up(tmp_path: Path, port: int) -> Iterator[Up]:
    process = Up(tmp_path / "mesh", port)
    yield process
    if process.process.poll() is None:
        process.process.kill()
    process.process.communicate(timeout=END_S)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One that is ready, for tests that leave it as it is."""
    process = Up(tmp_path_factory.mktemp("running") / "mesh", free_ports(1)[0])
    process.ready()
    yield process
    assert process.end(signal.SIGTERM) == 0


def gone(pid: int) -> bool:
    """Wait until a process that is nobody's business here has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], END_S)[0])
    finally:
        os.close(descriptor)


def dueq(*words: str, given: bytes = b"") -> str:
    command = [sys.executable, "-m", "dueq.cli.main", *words]
    return subprocess.run(command, input=given, capture_output=True, check=True, timeout=300).stdout.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_up_says_ready_describes_itself_and_ends_cleanly(up: Up, number: signal.Signals) -> None:
    assert up.ready() == f"ready {up.endpoint}"
    description = up.description()
    (broker,) = description["brokers"]
    assert (broker["id"], broker["endpoint"]) == ("b1", up.endpoint)
    assert description["zookeeper"] is None
    assert up.end(number) == 0
    assert gone(broker["pid"])
    assert not (up.data / "mesh.json").exists()


def test_killed_it_takes_its_children_along_and_started_again_it_goes_on_where_it_was(up: Up) -> None:
    up.ready()
    (broker,) = up.description()["brokers"]
    where = ("--endpoint", up.endpoint)
    dueq("topic", "create", "t", "--partitions", "2", "--replicas", "1", *where)
    ids = dueq("schedule", "t", "--lines", "--in", "1s", *where, given=b"one\ntwo\nthree\n").split()
    assert len(set(ids)) == 3
    dueq("cancel", "t", ids[1], *where)
    up.end(signal.SIGKILL)
    assert gone(broker["pid"])
    again = Up(up.data, up.port)
    try:
        again.ready()
        lines = dueq("consume", "t", "--count", "2", "--json", *where).splitlines()
        assert sorted(json.loads(line)["payload"] for line in lines) == ["one", "three"]
        assert again.end(signal.SIGTERM) == 0
    finally:
        again.process.kill()
        again.process.communicate(timeout=END_S)


def test_a_folder_in_use_is_refused(running: Up) -> None:
    second = Up(running.data, free_ports(1)[0])
    _, said = second.process.communicate(timeout=END_S)
    assert second.process.returncode == 1
    assert "is in use by another local mesh" in said
    assert (running.data / "mesh.json").exists()


def test_a_taken_port_is_named(running: Up, tmp_path: Path) -> None:
    second = Up(tmp_path / "other", running.port)
    _, said = second.process.communicate(timeout=END_S)
    assert second.process.returncode == 1
    assert f"port {running.port}" in said
    assert "--port" in said


def test_an_address_that_the_environment_gives_one_broker_is_not_for_those_of_a_mesh(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All brokers told others this one address: the mesh was never ready."""
    monkeypatch.setenv("DUEQ_ADVERTISE", "tcp://b9.example:7400")
    up = Up(tmp_path / "mesh", port)
    try:
        up.ready()
        page = json.loads(dueq("status", "--json", "--endpoint", up.endpoint))
        assert page["brokers"]["b1"]["endpoint"] == up.endpoint
    finally:
        up.end(signal.SIGTERM)


def test_up_ends_with_1_when_its_only_broker_dies_and_says_so(up: Up) -> None:
    up.ready()
    os.kill(up.description()["brokers"][0]["pid"], signal.SIGKILL)
    _, said = up.process.communicate(timeout=END_S)
    assert up.process.returncode == 1
    assert "broker b1 has ended (SIGKILL)" in said


def test_with_restart_a_dead_broker_comes_back(tmp_path: Path, port: int) -> None:
    up = Up(tmp_path / "mesh", port, "--restart")
    try:
        up.ready()
        first = up.description()["brokers"][0]["pid"]
        os.kill(first, signal.SIGKILL)
        page = json.loads(dueq("status", "--json", "--endpoint", up.endpoint, "--timeout", "30"))
        assert page["brokers"]["b1"]["alive"]
        assert up.description()["brokers"][0]["pid"] != first
        assert up.end(signal.SIGTERM) == 0
    finally:
        up.process.kill()
        up.process.communicate(timeout=END_S)


def test_with_restart_a_dead_gateway_comes_back_too(tmp_path: Path, port: int) -> None:
    pytest.importorskip("fastapi")
    up = Up(tmp_path / "mesh", port, "--restart", gateway=True)
    try:
        assert up.ready() == f"ready {up.endpoint}"
        first = up.description()["gateway"]
        os.kill(first["pid"], signal.SIGKILL)
        assert up.process.stderr is not None
        said = up.process.stderr.readline()
        assert "the gateway has ended (SIGKILL)" in said
        assert "starting it again" in said
        while up.description()["gateway"]["pid"] == first["pid"] or not answers(first["url"]):
            select.select([], [], [], 0.1)
        assert up.end(signal.SIGTERM) == 0
    finally:
        up.process.kill()
        up.process.communicate(timeout=END_S)


def answers(url: str) -> bool:
    """Whether a gateway is there."""
    try:
        with urlopen(f"{url}/healthz", timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_every_command_works_against_a_mesh(running: Up) -> None:
    where = ("--endpoint", running.endpoint)
    assert dueq("topic", "create", "t", "-p", "1", "-r", "1", *where).strip() == "created t"
    assert [topic["name"] for topic in json.loads(dueq("topic", "list", "--json", *where))] == ["t"]
    assert json.loads(dueq("topic", "describe", "t", "--json", *where))["replicas"] == 1
    message_id = dueq("schedule", "t", "far", "--in", "1h", *where).strip()
    assert "done" in dueq("move", "t", message_id, "--in", "20s", "--json", *where)
    counts = json.loads(dueq("forecast", "t", "--seconds", "60", "--json", *where))
    assert sum(entry["count"] for entry in counts) == 1
    assert "Brokers" in dueq("status", *where)
    assert "cancelled" in dueq("cancel", "t", message_id, *where)
    dueq("schedule", "t", "now", "--in", "0s", *where)
    assert dueq("consume", "t", "--count", "1", *where) == "now\n"
    assert dueq("topic", "delete", "t", *where).strip() == "deleted t"

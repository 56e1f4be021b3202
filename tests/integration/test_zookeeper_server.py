"""The local ZooKeeper process: its start, its end, its data, and what it says when it cannot start."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from dueq.cluster.server import ZooKeeperServer, ZooKeeperServerError

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("java") is None and not os.environ.get("CI"), reason="needs Java"),
]

_PARENT = """
import sys
from dueq.cluster.server import ZooKeeperServer
server = ZooKeeperServer(sys.argv[1])
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path / "zookeeper")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("running") / "zookeeper")
    yield server
    server.stop()


@pytest.fixture
def running(one_server: ZooKeeperServer) -> ZooKeeperServer:
    """The module's server, up whatever the test before has left."""
    if not one_server.running:
        one_server.start()
    return one_server


def put_and_get(server: ZooKeeperServer, path: str, value: bytes | None = None) -> bytes:
    client = KazooClient(server.address)
    client.start()
    try:
        if value is not None:
            client.create(path, value)
        found: bytes = client.get(path)[0]
        return found
    finally:
        client.stop()
        client.close()


def has_ended(pidfd: int) -> bool:
    """Wait for a process that is not our child; a file descriptor cannot mean another one by now."""
    try:
        return bool(select.select([pidfd], [], [], 20)[0])
    finally:
        os.close(pidfd)


def test_a_server_that_has_started_serves(running: ZooKeeperServer) -> None:
    assert put_and_get(running, "/here", b"value") == b"value"
    assert running.running
    assert running.pid > 0
    assert running.log.exists()


def test_a_killed_server_keeps_what_it_had_confirmed(running: ZooKeeperServer) -> None:
    put_and_get(running, "/confirmed", b"value")
    running.kill()
    running.start()
    assert put_and_get(running, "/confirmed") == b"value"


def test_a_server_started_again_goes_on_with_its_data_on_its_port(running: ZooKeeperServer) -> None:
    address = running.address
    put_and_get(running, "/kept", b"value")
    running.stop()
    assert not running.running
    again = ZooKeeperServer(running.folder)
    again.start()
    try:
        assert again.address == address
        assert put_and_get(again, "/kept") == b"value"
    finally:
        again.stop()


def test_another_port_is_used_when_the_last_one_is_taken(running: ZooKeeperServer) -> None:
    port = int(running.address.partition(":")[2])
    running.stop()
    with socket.create_server(("127.0.0.1", port)):
        running.start()
        assert running.address != f"127.0.0.1:{port}"


def test_a_paused_server_can_be_stopped(running: ZooKeeperServer) -> None:
    running.pause()
    running.stop()
    assert running.pid == 0


def test_all_of_it_is_in_its_folder_whatever_that_is_called(tmp_path: Path) -> None:
    """Java read the name in another encoding, and the data went into a folder beside it."""
    server = ZooKeeperServer(tmp_path / r"Jürgen\t")
    server.start()
    server.stop()
    assert list(tmp_path.iterdir()) == [server.folder]
    assert (server.folder / "data" / "version-2").is_dir()


def test_a_wanted_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ZooKeeperServerError, match=f"port {port} of 127.0.0.1 is in use"):
            ZooKeeperServer(tmp_path, port).start()


def test_the_server_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with parent:
        assert parent.stdout is not None
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
        assert has_ended(pidfd)


def test_a_server_that_ends_at_its_start_shows_its_log(server: ZooKeeperServer) -> None:
    (server.folder / "data").mkdir(parents=True)
    (server.folder / "data" / "version-2").write_text("in the way")
    with pytest.raises(ZooKeeperServerError, match=r"(?s)ended at its start.*version-2"):
        server.start()
    assert not server.running


def test_without_java_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ZooKeeperServerError, match=r"apt-get install default-jre-headless.*--no-zookeeper"):
        ZooKeeperServer(tmp_path).start()


def test_without_pyspark_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ZooKeeperServerError, match=r"pip install 'dueq\[spark\]'.*--no-zookeeper"):
        ZooKeeperServer(tmp_path).start()


def test_old_logs_are_purged_at_a_start(server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dueq.cluster.server._LOGS_KEPT", 4)
    for number in range(6):
        server.start()
        put_and_get(server, f"/{number}", b"value")
        server.stop()
    assert len(list((server.folder / "data" / "version-2").glob("log.*"))) <= 5
    server.start()
    assert put_and_get(server, "/0") == b"value"

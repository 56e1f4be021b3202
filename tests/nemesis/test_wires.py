"""The proxy process: what it cuts, holds back, slows and resets, and how it knows who speaks."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from dueq_chaos.nemesis.network.proxy import owner_of
from dueq_chaos.nemesis.network.rules import CLIENTS, FREE, Rule, merge, ways
from dueq_chaos.nemesis.network.wires import ProxyWires

_HOST = "127.0.0.1"
_THERE, _BACK = (CLIENTS, "b1"), ("b1", CLIENTS)


class _Echo:
    """A server that notes what it hears and says it again."""

    def __init__(self) -> None:
        self._server = socket.create_server((_HOST, 0))
        self.port: int = self._server.getsockname()[1]
        self.heard = bytearray()
        self.changed = threading.Condition()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                while data := _received(connection):
                    with self.changed:
                        self.heard += data
                        self.changed.notify_all()
                    connection.sendall(data)

    def wait_for(self, text: bytes) -> None:
        """Return once this was heard."""
        with self.changed:
            assert self.changed.wait_for(lambda: text in self.heard, 10)

    def close(self) -> None:
        """End it."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(10)


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except OSError:
        return b""


@pytest.fixture
def echo() -> Iterator[_Echo]:
    found = _Echo()
    yield found
    found.close()


@pytest.fixture
def wires(echo: _Echo) -> Iterator[ProxyWires]:
    found = ProxyWires({"b1": echo.port}, zookeeper_port=1)
    yield found
    found.close()


@pytest.fixture
def port(wires: ProxyWires) -> int:
    return int(wires.advertised("b1").rpartition(":")[2])


@pytest.fixture
def line(wires: ProxyWires, port: int) -> Iterator[socket.socket]:
    """A connection through the proxy over which something has passed both ways."""
    with socket.create_connection((_HOST, port), timeout=10) as found:
        found.sendall(b"first ")
        assert found.recv(100) == b"first "
        yield found


def _silent(line: socket.socket) -> bool:
    """Whether nothing comes for a while."""
    line.settimeout(0.2)
    try:
        return line.recv(100) == b"never"
    except TimeoutError:
        return True
    finally:
        line.settimeout(10)


def test_what_is_said_into_a_cut_arrives_when_it_is_mended(
    wires: ProxyWires, line: socket.socket, echo: _Echo
) -> None:
    wires.add("fault", dict.fromkeys(ways([CLIENTS], ["b1"]), Rule(cut=True)))
    line.sendall(b"second ")
    assert _silent(line)
    assert bytes(echo.heard) == b"first "
    wires.remove("fault")
    assert line.recv(100) == b"second "


def test_a_cut_of_one_direction_lets_the_other_pass(
    wires: ProxyWires, line: socket.socket, echo: _Echo
) -> None:
    wires.add("fault", {_BACK: Rule(cut=True)})
    line.sendall(b"second ")
    echo.wait_for(b"second ")
    assert _silent(line)
    wires.remove("fault")
    assert line.recv(100) == b"second "


def test_a_connection_made_during_a_cut_works_afterwards(wires: ProxyWires, port: int) -> None:
    wires.add("fault", {_THERE: Rule(cut=True)})
    with socket.create_connection((_HOST, port), timeout=10) as line:
        line.sendall(b"hello")
        assert _silent(line)
        wires.remove("fault")
        assert line.recv(100) == b"hello"


def test_a_way_that_two_faults_cut_is_free_when_both_have_ended(
    wires: ProxyWires, line: socket.socket
) -> None:
    wires.add("one", {_THERE: Rule(cut=True)})
    wires.add("other", {_THERE: Rule(cut=True)})
    line.sendall(b"second ")
    wires.remove("one")
    assert _silent(line)
    wires.remove("other")
    assert line.recv(100) == b"second "


def test_slow_and_lossy_ways_keep_every_byte_in_order(wires: ProxyWires, line: socket.socket) -> None:
    wires.add("fault", dict.fromkeys((_THERE, _BACK), Rule(delay_ms=5, jitter_ms=20, loss=0.05)))
    sent = b"".join(b"%d " % number for number in range(20_000))
    line.sendall(sent)
    came = bytearray()
    while len(came) < len(sent):
        came += line.recv(1 << 16)
    assert bytes(came) == sent


def test_a_reset_breaks_the_connection_and_lets_new_ones_be_made(
    wires: ProxyWires, line: socket.socket, port: int, echo: _Echo
) -> None:
    wires.reset("b1")
    with pytest.raises(ConnectionResetError):
        line.recv(100)
    with socket.create_connection((_HOST, port), timeout=10) as another:
        another.sendall(b"again")
        assert another.recv(100) == b"again"


def test_the_end_of_one_half_is_the_end_of_the_other(line: socket.socket) -> None:
    line.shutdown(socket.SHUT_WR)
    assert line.recv(100) == b""


def test_the_holder_of_a_connection_is_found() -> None:
    with socket.create_server((_HOST, 0)) as server:
        ours = server.getsockname()[1]
        with socket.create_connection((_HOST, ours)) as line:
            theirs = line.getsockname()[1]
            assert owner_of(theirs, ours, {"b1": os.getpid()}) == "b1"
            assert owner_of(theirs, ours, {"b1": 1 << 30}) == CLIENTS


def test_of_several_rules_the_worse_counts_point_by_point() -> None:
    way = ("b1", "b2")
    assert merge([{way: Rule(delay_ms=5, loss=0.1)}, {way: Rule(cut=True, delay_ms=3)}]) == {
        way: Rule(cut=True, delay_ms=5, loss=0.1)
    }
    assert merge([]) == {}
    assert Rule.from_json(FREE.as_json()) == FREE


def test_ways_go_there_and_back_but_never_to_oneself() -> None:
    assert ways(["b1"], ["b1", "b2"]) == [("b1", "b2"), ("b2", "b1")]
    assert ways(["b1"], ["b1", "b2"], both=False) == [("b1", "b2")]

"""Sockets of a client that cannot be had, or that bring too much."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from dueq.client.core.ports.effects import Send
from dueq.client.core.ports.events import Event, LinkLost, LinkReady
from dueq.client.sockets import Sockets
from dueq.limits import FRAME_BYTES_MAX
from dueq_codecs.messages import MetadataRequest


@pytest.fixture
def wake_fd() -> Iterator[int]:
    made = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    yield made
    os.close(made)


@pytest.mark.parametrize("room", [0, 1, 2])
def test_a_socket_that_cannot_be_made_is_a_lost_link(wake_fd: int, room: int) -> None:
    """It is tried again: the client works on, by the links that it has. A socket that is watched needs three."""
    context: zmq.Context[Any] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, room + 1)
    with context.socket(zmq.PAIR):
        sockets = Sockets(context, wake_fd)
        sockets.open(7, "tcp://127.0.0.1:1")
        [[lost], woken] = sockets.wait(1000)
        assert isinstance(lost, LinkLost)
        assert (lost.link, woken) == (7, False)
        assert "Too many open files" in lost.reason
        sockets.close(7)
    context.destroy(0)


def test_a_frame_over_the_limit_costs_its_link(wake_fd: int) -> None:
    """Whatever answers at an endpoint fills no memory."""
    context: zmq.Context[Any] = zmq.Context()
    sockets = Sockets(context, wake_fd)

    def until(kind: type[Event]) -> None:
        for _ in range(60):
            if any(isinstance(event, kind) for event in sockets.wait(1000)[0]):
                return
        raise AssertionError(f"no {kind.__name__}")

    with context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        router.bind("tcp://127.0.0.1:0")
        sockets.open(7, router.getsockopt_string(zmq.LAST_ENDPOINT))
        until(LinkReady)
        sockets.send(Send(7, MetadataRequest(1)))
        identity = router.recv_multipart()[0]
        router.send_multipart([identity, bytes(FRAME_BYTES_MAX + 1)])
        until(LinkLost)
        sockets.close(7)
    context.destroy(0)


_WITHOUT_FILES = """
import os, resource
from dueq import Client
from dueq.errors import Disconnected

def ask(client, *errors):
    try:
        client.describe("t")
    except errors:
        return
    raise AssertionError("a topic was described")

def child(room):
    highest = max(map(int, os.listdir("/proc/self/fd")))
    usual, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Client("tcp://127.0.0.1:1", timeout=0.05) as client:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + room, hard))
        ask(client, OSError, Disconnected)
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, hard))
        ask(client, Disconnected)

for room in range(14):
    pid = os.fork()
    if not pid:
        child(room)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, room
"""


def test_a_client_that_begins_where_hardly_a_file_is_left_says_so_and_goes_on_later() -> None:
    """libzmq aborts a process in which its threads find no file, and it begins them at the first socket."""
    ended = subprocess.run([sys.executable, "-c", _WITHOUT_FILES], stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 0, ended.stderr.decode()

"""Sockets of a client that cannot be had."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from dueq.client.core.ports.events import LinkLost
from dueq.client.sockets import Sockets


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

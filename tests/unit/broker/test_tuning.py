"""What all sockets of a broker have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from dueq.broker.tuning import tune


@pytest.fixture
def socket() -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as found:
        tune(found, "tcp://127.0.0.1:0")
        yield found


def test_libzmq_sends_no_heartbeats_which_could_abort_the_process(socket: zmq.Socket[bytes]) -> None:
    """With them, a reset connection whose input waits for a full pipe is the end of a broker (libzmq 4.3.5)."""
    assert socket.getsockopt(zmq.HEARTBEAT_IVL) == 0


def test_libzmq_never_stops_reading_a_connection_which_could_abort_the_process(
    socket: zmq.Socket[bytes],
) -> None:
    """See `test_pings`: the answer to a ping that waits does what a heartbeat would do."""
    assert socket.getsockopt(zmq.RCVHWM) == 0


def test_the_kernel_finds_connections_that_are_dead_without_a_word(socket: zmq.Socket[bytes]) -> None:
    def option(number: int) -> int:
        return int(socket.getsockopt(number))

    probed_s = option(zmq.TCP_KEEPALIVE_IDLE) + option(zmq.TCP_KEEPALIVE_INTVL) * option(
        zmq.TCP_KEEPALIVE_CNT
    )
    assert option(zmq.TCP_KEEPALIVE) == 1
    assert probed_s * 1000 == option(zmq.TCP_MAXRT) == 10_000

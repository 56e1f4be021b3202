"""The mesh inside a test: the real client and broker, with a clock that only the test moves."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import numpy as np
import pytest

from dueq import Client, InvalidRequest, TopicNotFound
from dueq.testing import Mesh, NotAtRest, mesh

START = datetime(2026, 3, 28, 12, tzinfo=UTC)


@pytest.fixture
def dueq_mesh() -> Iterator[Mesh]:
    with mesh(START) as found:
        yield found


@pytest.fixture
def client(dueq_mesh: Mesh) -> Client:
    found = dueq_mesh.client()
    found.create_topic("t")
    return found


def test_a_message_comes_at_its_instant_and_not_before(dueq_mesh: Mesh, client: Client) -> None:
    due = dueq_mesh.now + timedelta(hours=1)
    client.producer("t").schedule(b"hello", due)
    with client.consumer("t") as consumer:
        dueq_mesh.run_until(due - timedelta(milliseconds=1))
        assert consumer.receive(timeout=0) == []
        dueq_mesh.advance(0.001)
        [message] = consumer.receive(timeout=0)
    assert (message.payload, message.due, message.lateness) == (b"hello", dueq_mesh.now_ms, 0.0)


def test_a_waiting_test_lets_time_pass_by_itself(dueq_mesh: Mesh, client: Client) -> None:
    client.producer("t").schedule(b"", timedelta(minutes=20))
    before = dueq_mesh.now_ms
    with client.consumer("t") as consumer:
        assert consumer.receive(timeout=60) == []
        assert len(consumer.receive(timeout=3600)) == 1
    assert timedelta(milliseconds=dueq_mesh.now_ms - before) == timedelta(minutes=20)


def test_the_next_instants_are_those_of_a_message_a_lease_and_a_retry(
    dueq_mesh: Mesh, client: Client
) -> None:
    client.producer("t").schedule(b"", timedelta(seconds=60))
    begin = dueq_mesh.now_ms
    with client.consumer("t", lease=30) as consumer:
        assert dueq_mesh.advance_to_next() == begin + 60_000
        [first] = consumer.receive(timeout=0)
        assert dueq_mesh.advance_to_next() == begin + 90_000  # its lease ends
        [second] = consumer.receive(timeout=1)
        second.nack(delay=5, wait=True)
        at = dueq_mesh.now_ms
        assert dueq_mesh.advance_to_next() == at + 5_000
        [third] = consumer.receive(timeout=1)
        third.ack()
    assert [message.attempt for message in (first, second, third)] == [1, 2, 3]
    with pytest.raises(InvalidRequest, match="nothing is going to happen"):
        dueq_mesh.advance_to_next()


def test_a_recurrence_ticks_by_the_clocks_of_its_zone() -> None:
    with mesh(datetime(2026, 3, 29, 0, 50, tzinfo=UTC)) as dueq_mesh:
        client = dueq_mesh.client()
        client.create_topic("t")
        client.create_recurrence("t", "daily", cron="0 3 * * *", zone="Europe/Berlin", payload=b"x")
        with client.consumer("t") as consumer:
            [message] = consumer.receive(timeout=3600)
            # At 01:00 UTC clocks go from 2 to 3.
            assert datetime.fromtimestamp(message.due / 1000, UTC) == datetime(2026, 3, 29, 1, tzinfo=UTC)
            message.ack()


def test_a_handler_in_another_thread_is_waited_for(dueq_mesh: Mesh, client: Client) -> None:
    producer = client.producer("t")
    producer.schedule_many([b"a", b"b", b"c"], [timedelta(seconds=n) for n in (1, 2, 3)])
    done: list[tuple[bytes, int]] = []
    attached = threading.Event()

    def handle() -> None:
        with client.consumer("t") as consumer:
            attached.set()
            for message in consumer:
                done.append((message.payload, dueq_mesh.now_ms - message.due))
                message.ack()
                if len(done) == 3:
                    return

    thread = threading.Thread(target=handle)
    thread.start()
    assert attached.wait(30)
    for _ in range(3):
        dueq_mesh.advance(1)
    thread.join()
    assert done == [(b"a", 0), (b"b", 0), (b"c", 0)]
    assert client.describe("t").scheduled == 0


def test_meshes_share_nothing(dueq_mesh: Mesh, client: Client) -> None:
    with mesh(START) as other, pytest.raises(TopicNotFound):
        other.client().describe("t")


def test_clients_of_one_mesh_share_its_topics(dueq_mesh: Mesh, client: Client) -> None:
    dueq_mesh.client().producer("t").schedule(b"", timedelta(0))
    with client.consumer("t") as consumer:
        assert len(consumer.receive()) == 1


@pytest.mark.parametrize("seconds", [-1.0, 1e12, pytest.param(10**400, id="huge"), math.nan, timedelta.max])
def test_the_clock_goes_neither_back_nor_too_far(dueq_mesh: Mesh, seconds: float) -> None:
    with pytest.raises(InvalidRequest, match="0 to 3660 days"):
        dueq_mesh.advance(seconds)


@pytest.mark.parametrize("later_ms", [-1, pytest.param(10**400, id="huge"), math.nan, math.inf])
def test_it_does_not_go_so_to_an_instant(dueq_mesh: Mesh, later_ms: float) -> None:
    with pytest.raises(InvalidRequest, match="3660 days at most"):
        dueq_mesh.run_until(dueq_mesh.now_ms + later_ms)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["5", b"5", None, True, [], np.timedelta64(5, "s")])
def test_what_is_no_time_is_refused_by_name(dueq_mesh: Mesh, value: Any) -> None:
    before = dueq_mesh.now_ms
    with pytest.raises(InvalidRequest, match="seconds or a timedelta, not by"):
        dueq_mesh.advance(value)
    with pytest.raises(InvalidRequest, match="a datetime with a zone, or Unix ms, not"):
        dueq_mesh.run_until(value)
    if value is not None:
        with pytest.raises(InvalidRequest, match="start is a datetime with a time zone, or None, not"):
            Mesh(value)
    assert dueq_mesh.now_ms == before


def test_instants_may_be_numbers_of_numpy(dueq_mesh: Mesh) -> None:
    due = dueq_mesh.now_ms + 5_000
    dueq_mesh.run_until(cast(int, np.int64(due)))
    assert dueq_mesh.now_ms == due


def test_the_clock_begins_at_the_millisecond() -> None:
    start = START + timedelta(milliseconds=1999)
    with mesh(start) as found:
        assert found.now == start
        client = found.client()
        client.create_topic("t")
        due = start + timedelta(milliseconds=500)
        client.producer("t").schedule(b"x", due)
        assert found.advance_to_next() == due.timestamp() * 1000


def test_the_clock_begins_after_1970() -> None:
    with pytest.raises(InvalidRequest, match="before 1970"):
        Mesh(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC))


def test_instants_need_a_zone(dueq_mesh: Mesh) -> None:
    with pytest.raises(InvalidRequest, match="no time zone"):
        dueq_mesh.run_until(datetime(2027, 1, 1))
    with pytest.raises(InvalidRequest, match="no time zone"):
        Mesh(datetime(2027, 1, 1))


def test_waiting_for_what_never_comes_ends(dueq_mesh: Mesh, client: Client) -> None:
    consumer = client.consumer("t", credit=1)
    with pytest.raises(NotAtRest, match="nothing is going to happen"):
        next(iter(consumer))


def test_a_pulled_message_knows_what_is_left_of_its_lease(dueq_mesh: Mesh, client: Client) -> None:
    client.producer("t").schedule(b"", timedelta(0))
    [message] = client.pull("t", wait=5, lease=30)
    dueq_mesh.advance(10)
    assert 19 < message.lease <= 20
    message.ack()

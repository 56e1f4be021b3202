"""A message's whole life inside a test: retries, its death, and a recurrence over a change of clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dueq import Backoff, Filter, Message
from dueq.testing import mesh


def test_retries_follow_the_back_off_until_a_message_is_dead() -> None:
    with mesh() as dueq_mesh:
        client = dueq_mesh.client()
        client.create_topic("t", max_attempts=3, backoff=Backoff(first=60.0, factor=10.0, jitter=0.0))
        message_id = client.producer("t").schedule(b"", timedelta(minutes=1))
        begin, instants = dueq_mesh.now, []

        def handler(message: Message) -> None:
            instants.append(dueq_mesh.now - begin)
            raise ConnectionError("the bank does not answer")

        with dueq_mesh.running(client.consumer("t"), handler):
            for _ in range(3):
                with pytest.raises(ConnectionError):
                    dueq_mesh.advance(900)
            dueq_mesh.advance(600)
        minutes = [round(instant / timedelta(minutes=1)) for instant in instants]
        assert minutes == [1, 2, 12]
        dead = client.get("t", message_id)
        assert (dead.state, dead.attempt) == ("dead", 3)
        assert dead.reason == "ConnectionError: the bank does not answer"
        client.redrive_where("t", Filter(state="dead")).wait()
        with client.consumer("t") as consumer:
            [message] = consumer.receive(timeout=5)
            assert message.attempt == 1


def test_dead_messages_are_kept_as_long_as_the_topic_says() -> None:
    with mesh() as dueq_mesh:
        client = dueq_mesh.client()
        client.create_topic("t", dead_retention=timedelta(hours=2))
        message_id = client.producer("t").schedule(b"", 0)
        with client.consumer("t") as consumer:
            [message] = consumer.receive(timeout=5)
            message.nack(dead=True, wait=True)
        dueq_mesh.advance(3600)
        assert client.get("t", message_id).state == "dead"
        dueq_mesh.advance(2 * 3600)
        assert client.describe("t").dead == 0


def test_a_nightly_recurrence_keeps_to_the_clocks_of_its_zone() -> None:
    with mesh(datetime(2026, 10, 24, 0, 50, tzinfo=UTC)) as dueq_mesh:  # clocks go back in the next night
        client = dueq_mesh.client()
        client.create_topic("t")
        client.create_recurrence("t", "nightly", cron="0 3 * * *", zone="Europe/Berlin", payload=b"x")
        hours: list[int] = []
        for _ in range(2):
            dueq_mesh.advance_to_next()
            with client.consumer("t") as consumer:
                consumer.ack(consumer.receive(timeout=5))
            hours.append(dueq_mesh.now.hour)
        assert hours == [1, 2]

"""A message that fails again and again is dead after its last attempt, also when its leader is killed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dueq import Backoff, Client, Filter, InvalidRequest, Outcome
from dueq.local import LocalMesh
from tests.integration.waiting import until

pytestmark = pytest.mark.integration


def dead_of(client: Client, topic: str) -> int:
    return client.count_where(topic, Filter(state="dead"))


def fail(client: Client, topic: str, attempts: int, reason: str = "no such card") -> None:
    """Give the only message back so often."""
    with client.consumer(topic, credit=1, lease=30.0) as consumer:
        for attempt in range(1, attempts + 1):
            [message] = consumer.receive(1, timeout=30.0)
            assert message.attempt == attempt
            message.nack(reason=reason, wait=True)


def test_after_its_last_attempt_a_message_is_dead_until_it_is_redriven(client: Client) -> None:
    topic = "dead-redriven"
    client.create_topic(topic, replicas=3)
    client.update_topic(topic, max_attempts=3, backoff=Backoff(first=0.02, factor=1.0, jitter=0.0))
    with client.producer(topic) as producer:
        producer.schedule(b"pay", 0)
    fail(client, topic, 3)
    assert dead_of(client, topic) == 1
    [found] = client.browse(topic, state="dead", payloads=True)
    assert (found.attempt, found.reason, found.payload) == (3, "no such card", b"pay")
    assert found.died_at >= found.due
    state = client.get(topic, found.id)
    assert (state.state, state.died_at) == ("dead", found.died_at)
    assert not list(client.browse(topic))
    redriven = client.redrive_where(topic, Filter(state="dead"))
    assert redriven.wait(timeout=30.0).done == 1
    assert dead_of(client, topic) == 0
    with client.consumer(topic, credit=1) as consumer:
        [message] = consumer.receive(1, timeout=30.0)
        assert (message.payload, message.attempt) == (b"pay", 1)
        message.nack(dead=True, reason="fraud", wait=True)
    assert dead_of(client, topic) == 1
    client.purge(topic, "dead")
    assert dead_of(client, topic) == 0
    client.delete_topic(topic)


def test_dead_messages_are_redriven_and_discarded_by_id_and_by_filter(client: Client) -> None:
    topic = "dead-by-id"
    client.create_topic(topic, replicas=3, max_attempts=1, backoff=Backoff(2.0, 3.0, 60.0, 0.5))
    described = client.describe(topic)
    assert (described.max_attempts, described.backoff) == (1, Backoff(2.0, 3.0, 60.0, 0.5))
    with client.producer(topic) as producer:
        ids = producer.schedule_many([b"x"] * 4, 0, keys=["a", "b", "c-1", "c-2"])
        later = producer.schedule(b"x", timedelta(hours=1))
        with client.consumer(topic, credit=4) as consumer:
            for _ in ids:
                [message] = consumer.receive(1, timeout=30.0)
                message.nack(wait=True)
        assert producer.redrive_many([ids[0], later], timedelta(hours=1)) == [Outcome.DONE, Outcome.NOT_FOUND]
        assert producer.redrive_many([ids[0]]) == [Outcome.NOT_FOUND]
        assert producer.discard_many([ids[1], later]) == [Outcome.DONE, Outcome.NOT_FOUND]
    assert client.get(topic, ids[0]).attempt == 0
    with pytest.raises(InvalidRequest, match="dead"):
        client.discard_where(topic, Filter(key_prefix="c-"))
    discarded = client.discard_where(topic, Filter(key_prefix="c-1", state="dead"))
    assert discarded.wait(timeout=30.0).done == 1
    assert [found.key for found in client.browse(topic, state="dead")] == ["c-2"]
    client.delete_topic(topic)


def test_what_expires_is_never_delivered_and_dead_if_the_topic_says_so(client: Client) -> None:
    topic = "dead-expired"
    client.create_topic(topic, partitions=1, replicas=3, expired="dead")
    with client.producer(topic) as producer:
        producer.schedule(b"late", 0, expires=1_000_000_000_000)
        producer.schedule(b"in time", 0, expires=timedelta(minutes=5), max_attempts=1)
    with client.consumer(topic, credit=2) as consumer:
        [message] = consumer.receive(1, timeout=30.0)
        assert message.payload == b"in time"
        assert message.expires > message.due
        message.nack(wait=True)
    # What expired dies by a record of its own, when its leader meets it.
    until(lambda: dead_of(client, topic) == 2, "what expired is dead")
    reasons = {found.payload: found.reason for found in client.browse(topic, state="dead", payloads=True)}
    assert reasons == {b"late": "it was not delivered before it expired", b"in time": ""}
    client.delete_topic(topic)


def test_a_dead_message_goes_when_it_was_kept_for_as_long_as_the_topic_says(client: Client) -> None:
    topic = "dead-retained"
    client.create_topic(topic, replicas=3)
    client.update_topic(topic, dead_retention=1.0)
    with client.producer(topic) as producer:
        producer.schedule(b"pay", 0)
    with client.consumer(topic, credit=1) as consumer:
        [message] = consumer.receive(1, timeout=30.0)
        message.nack(dead=True, wait=True)
    until(lambda: not dead_of(client, topic), "the dead message is gone")
    client.delete_topic(topic)


def test_a_new_leader_counts_attempts_as_the_killed_one_did() -> None:
    with LocalMesh() as mesh, Client(mesh.endpoints) as client:
        client.create_topic("poison", replicas=3)
        client.update_topic("poison", max_attempts=3)
        with client.producer("poison") as producer:
            producer.schedule(b"poison", 0)
        with client.consumer("poison", credit=1, lease=60.0) as consumer:
            for attempt in (1, 2, 3):
                [message] = consumer.receive(1, timeout=60.0)
                assert message.attempt == attempt
                message.nack(reason="poison", wait=True, timeout=60.0)
                if attempt == 2:
                    leader = client.describe("poison").placement[0].leader
                    names = [broker.broker_id for broker in mesh.brokers]
                    mesh.kill(names.index(leader))
        with Client(mesh.endpoints) as other:
            until(lambda: dead_of(other, "poison") == 1, "it is dead")

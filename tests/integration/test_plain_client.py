"""The page on the wire protocol is complete: a client that was written from it alone does what ours does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from dueq import Client
from dueq.local import LocalMesh
from tests.integration.plain_client import (
    ACK,
    CANCEL,
    CHUNK,
    EXTEND,
    INSERT,
    MOVE,
    NACK,
    RELEASE,
    PlainClient,
)
from tests.integration.plain_consumer import PlainConsumer

pytestmark = pytest.mark.integration

DONE, LEASED, NOT_FOUND, STALE = 0, 1, 2, 3
SEQUENCE_REUSED = 5


@pytest.fixture(scope="module")
def one_broker() -> Iterator[LocalMesh]:
    with LocalMesh(brokers=1, zookeeper=False) as mesh:
        yield mesh


@pytest.fixture
def plain(one_broker: LocalMesh) -> Iterator[PlainClient]:
    client = PlainClient(one_broker.endpoints[0])
    yield client
    client.close()


def test_a_message_is_scheduled_delivered_and_acknowledged(plain: PlainClient) -> None:
    (uid,) = plain.create_topic("simple", 1, 1)
    due = plain.mesh_ms() + 300
    (message_id,) = plain.schedule("simple", uid, [b"hello"], [due])
    consumer = PlainConsumer(plain, "simple")
    (delivery,) = consumer.take(1, 60)
    assert (delivery.payload, delivery.id, delivery.due, delivery.attempt) == (b"hello", message_id, due, 1)
    assert delivery.late_ms >= 0
    assert time.monotonic() < delivery.ends <= time.monotonic() + 30
    assert consumer.settle(ACK, [delivery]) == [DONE]
    assert consumer.settle(ACK, [delivery]) == [STALE]
    consumer.close()


def test_a_repeated_request_takes_effect_once(plain: PlainClient) -> None:
    (uid,) = plain.create_topic("repeated", 1, 1)
    first = plain.schedule("repeated", uid, [b"a", b""], [1, 2])
    again = plain.schedule("repeated", uid, [b"a", b""], [1, 2], sequence=plain.inserted["request_sequence"])
    assert again == first
    other = plain.change(
        INSERT, "repeated", uid, b"b", due=[1], size=[1], crc=[0x71BEEFF9],
        sequence=plain.inserted["request_sequence"],
    )  # fmt: skip
    assert other["code"] == SEQUENCE_REUSED
    consumer = PlainConsumer(plain, "repeated")
    assert sorted(delivery.payload for delivery in consumer.take(3, 3)) == [b"", b"a"]
    consumer.close()


def test_what_can_be_done_to_messages_that_wait_and_that_are_leased(plain: PlainClient) -> None:
    (uid,) = plain.create_topic("changes", 1, 1)
    later = plain.mesh_ms() + 3_600_000
    plain.schedule("changes", uid, [b"move", b"cancel"], [later, later])
    names = {
        "first": [max(later, plain.inserted["stamp"])] * 2,
        "target_sequence": [plain.inserted["sequence"]] * 2,
        "target_row": [0, 1],
    }
    one, two = ({name: [column[row]] for name, column in names.items()} for row in (0, 1))
    assert plain.change(CANCEL, "changes", uid, **two)["outcomes"] == [DONE]
    assert plain.change(CANCEL, "changes", uid, **two)["outcomes"] == [NOT_FOUND]
    assert plain.change(MOVE, "changes", uid, **one, due=[plain.mesh_ms()])["outcomes"] == [DONE]
    consumer = PlainConsumer(plain, "changes")
    (delivery,) = consumer.take(1, 60)
    assert plain.change(CANCEL, "changes", uid, **one)["outcomes"] == [LEASED]
    assert consumer.settle(EXTEND, [delivery], 60_000) == [DONE]
    assert consumer.settle(RELEASE, [delivery]) == [DONE]
    (delivery,) = consumer.take(1, 60)
    assert delivery.attempt == 1
    assert consumer.settle(NACK, [delivery], 0) == [DONE]
    (delivery,) = consumer.take(1, 60)
    assert delivery.attempt == 2
    assert consumer.settle(ACK, [delivery]) == [DONE]
    consumer.close()


def test_long_payloads_travel_in_chunks(plain: PlainClient) -> None:
    (uid,) = plain.create_topic("long", 1, 1)
    payloads = [bytes(range(256)) * 3000, b"short"]
    assert len(payloads[0]) > 2 * CHUNK
    plain.schedule("long", uid, payloads, [0, 0])
    # The first attempt has taken the upload: a repetition brings another.
    plain.schedule("long", uid, payloads, [0, 0], sequence=plain.inserted["request_sequence"])
    consumer = PlainConsumer(plain, "long")
    deliveries = consumer.take(2, 60)
    assert sorted(delivery.payload for delivery in deliveries) == sorted(payloads)
    assert consumer.settle(ACK, deliveries) == [DONE, DONE]
    assert consumer.take(1, 1) == []
    consumer.close()


def test_both_clients_understand_each_other_through_any_broker(mesh: LocalMesh, client: Client) -> None:
    plain = PlainClient(mesh.endpoints[0])
    uids = plain.create_topic("together", 6, 3)
    producer = client.producer("together")
    ours = [producer.schedule(f"ours {n}".encode(), due=datetime.now(UTC), key=f"k{n}") for n in range(6)]
    theirs = [plain.schedule("together", uid, [b"theirs"], [0])[0] for uid in uids]
    consumer = PlainConsumer(plain, "together")
    deliveries = consumer.take(12, 60)
    assert sorted(delivery.id for delivery in deliveries) == sorted(ours + theirs)
    assert sorted(delivery.key for delivery in deliveries if delivery.key) == [b"k%d" % n for n in range(6)]
    kept = [delivery for delivery in deliveries if delivery.key]
    assert set(consumer.settle(ACK, kept)) == {DONE}
    consumer.close()  # it gives back what it has not settled
    with client.consumer("together") as rest:
        left = set(theirs)
        while left:
            messages = rest.receive(timeout=60)
            assert {message.id for message in messages} <= left
            left -= {message.id for message in messages}
            rest.ack(messages)
    plain.close()
    client.delete_topic("together")

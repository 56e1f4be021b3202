"""What users do all day, through every door of a mesh of three: each face, each broker, each operation."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from dueq import AsyncClient, Client, Message, Outcome
from dueq.client.sockets import Sockets
from dueq.errors import InvalidRequest, MessageNotFound, PayloadTooLarge, StaleLease
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, Ledger, now_ms

pytestmark = pytest.mark.integration


def one(client: Client, topic: str, lease: float = 30.0) -> Message:
    """The next message, its lease kept by a consumer that is closed with the client."""
    (message,) = client.consumer(topic, lease=lease, credit=1).receive(1, timeout=PATIENCE_S)
    return message


@pytest.mark.parametrize("number", [0, 1, 2])
def test_produce_and_consume_through_one_broker_that_knows_the_others(
    mesh: LocalMesh, topic: str, number: int
) -> None:
    _a_whole_life(mesh.endpoints[number], topic)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_produce_and_consume_where_a_client_can_reach_one_broker_only(
    mesh: LocalMesh, topic: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    door, open_socket = mesh.endpoints[number], Sockets.open

    def open_walled(self: Sockets, link: int, endpoint: str) -> None:
        open_socket(self, link, endpoint if endpoint == door else "tcp://127.0.0.1:1")

    monkeypatch.setattr(Sockets, "open", open_walled)
    _a_whole_life(door, topic)


def _a_whole_life(endpoint: str, topic: str) -> None:
    """Schedule over all partitions, move, cancel, receive and acknowledge, a long payload too."""
    ledger = Ledger()
    with Client(endpoint) as client, client.producer(topic) as producer:
        ids = []
        for batch in range(9):
            due = now_ms() + 300
            ids += ledger.schedule(producer, [b"%d.%d" % (batch, row) for row in range(20)], due)
        ledger.schedule(producer, [bytes(range(256)) * 8_192], now_ms())
        assert ledger.move(producer, ids[:30], now_ms() + 600) == [Outcome.DONE] * 30
        far = ledger.schedule(producer, [b"far %d" % row for row in range(10)], now_ms() + 60_000)
        assert ledger.cancel(producer, far) == [Outcome.DONE] * 10
        with client.consumer(topic, lease=60.0, credit=30) as consumer:
            ledger.collect(consumer)
        shown = client.describe(topic)
    ledger.check()
    assert (shown.scheduled, shown.ready, shown.leased) == (0, 0, 0)


def test_the_asyncio_face_gathers_many_callers(mesh: LocalMesh, topic: str) -> None:
    async def run() -> tuple[set[str], set[str]]:
        async with AsyncClient(mesh.endpoints) as client, client.producer(topic) as producer:
            due = now_ms() + 100
            ids = await asyncio.gather(*(producer.schedule(b"%d" % number, due) for number in range(50)))
            with pytest.raises(MessageNotFound):
                await producer.cancel(ids[0][:-4] + "0ZZ0")
            seen: set[str] = set()
            async with client.consumer(topic, lease=30.0, credit=10) as consumer:
                async for message in consumer:
                    assert message.released_at >= message.due
                    seen.add(message.id)
                    await message.ack(wait=True)
                    if len(seen) == len(ids):
                        break
            return set(ids), seen

    scheduled, seen = asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    assert seen == scheduled


def test_a_nack_brings_a_message_again_after_its_delay_and_counts(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        key = producer.schedule(b"again", now_ms())
    with client.consumer(topic, lease=30.0, credit=5) as consumer:
        (first,) = consumer.receive(1, timeout=PATIENCE_S)
        sent = now_ms()
        first.nack(delay=0.5, wait=True)
        (second,) = consumer.receive(1, timeout=PATIENCE_S)
        assert (second.id, second.attempt, second.due) == (key, 2, first.due)
        assert second.released_at >= sent + 500
        second.ack(wait=True)


def test_a_paused_topic_delivers_nothing_and_everything_once_it_is_resumed(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    client.pause(topic)
    with Client(mesh.endpoints[1]) as other:
        shown = other.describe(topic)
        assert (shown.paused, {part.settings_version for part in shown.placement}) == (True, {1})
    with client.producer(topic) as producer:
        ids = producer.schedule_many([b"x"] * 30, [now_ms()] * 30)
    with client.consumer(topic, lease=30.0, credit=30) as consumer:
        assert consumer.receive(1, timeout=0.5) == []
        before = now_ms()
        client.resume(topic)
        seen: set[str] = set()
        while len(seen) < len(ids):
            batch = consumer.receive(30, timeout=PATIENCE_S)
            assert all(message.released_at >= before and message.attempt == 1 for message in batch)
            seen.update(message.id for message in batch)
            consumer.ack(batch)
    assert seen == set(ids)


def test_a_purge_cancels_what_waits_and_leaves_what_is_held(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.schedule_many([b"far"] * 3_000, [now_ms() + 3_600_000] * 3_000)
        producer.schedule_many([b"now"] * 4, [now_ms()] * 4)
        with client.consumer(topic, lease=60.0, credit=4) as consumer:
            held = []
            while len(held) < 4:
                held += consumer.receive(4, timeout=PATIENCE_S)
            done = client.purge(topic)
            assert (done.done, done.skipped, done.left, done.progress.ended) == (
                3_000,
                {"leased": 4},
                0,
                True,
            )
            consumer.ack(held)
        producer.schedule(b"later", now_ms() + 3_600_000)
    shown = client.describe(topic)
    assert (shown.scheduled, shown.leased) == (1, 0)
    again = client.purge(topic, wait=False)
    assert again.wait().done == 1
    with pytest.raises(InvalidRequest, match="state is one of waiting, dead, all, not 'leased'"):
        client.purge(topic, "leased")


def test_more_partitions_take_messages_and_their_consumers_find_them(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    before = client.describe(topic)
    with client.producer(topic) as producer:
        first = producer.schedule_many([b"x"] * 10, [now_ms() + 500] * 10)
        with client.consumer(topic, lease=30.0, credit=64) as consumer:
            client.update_topic(topic, partitions=before.partitions + 3)
            shown = client.describe(topic)
            assert (shown.partitions, shown.home_partitions) == (before.partitions + 3, before.partitions)
            assert [part.uid for part in shown.placement][: before.partitions] == [
                part.uid for part in before.placement
            ]
            ids = {*first}
            for _ in range(3 * shown.partitions):
                ids.update(producer.schedule_many([b"y"] * 5, [now_ms()] * 5))
            seen: set[str] = set()
            while len(seen) < len(ids):
                batch = consumer.receive(64, timeout=PATIENCE_S)
                assert batch
                seen.update(message.id for message in batch)
                consumer.ack(batch)
        assert seen == ids
        waiting = client.describe(topic)
    assert (waiting.scheduled, waiting.ready, waiting.leased) == (0, 0, 0)
    with pytest.raises(InvalidRequest, match="never fewer: not 1"):
        client.update_topic(topic, partitions=1)


def test_changed_limits_hold_at_once_for_a_client_that_knew_the_old_ones(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    with client.producer(topic) as producer:
        producer.schedule(b"knows the topic", now_ms() + 3_600_000)
        with Client(mesh.endpoints[1]) as other:
            other.update_topic(topic, payload_bytes_max=4, horizon=60)
        with pytest.raises(PayloadTooLarge, match="5 bytes"):
            producer.schedule(b"12345", now_ms())
        with pytest.raises(InvalidRequest, match="60000 ms"):
            producer.schedule(b"1234", now_ms() + 3_600_000)
        with Client(mesh.endpoints[1]) as other:
            other.update_topic(topic, payload_bytes_max=5, horizon=0, labels={"owner": "mail"})
        producer.schedule(b"12345", now_ms() + 3_600_000)
        with pytest.raises(
            InvalidRequest, match="payload_bytes_max is a whole number from 1 to 67108864, not 0"
        ):
            client.update_topic(topic, payload_bytes_max=0)
    shown = client.describe(topic)
    assert (shown.settings_version, shown.labels) == (2, {"owner": "mail"})


def test_a_release_brings_a_message_again_uncounted(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.schedule(b"again", now_ms())
    with client.consumer(topic, lease=30.0, credit=5) as consumer:
        (first,) = consumer.receive(1, timeout=PATIENCE_S)
        first.release(wait=True)
        (second,) = consumer.receive(1, timeout=PATIENCE_S)
        assert (second.id, second.attempt) == (first.id, 1)
        second.ack(wait=True)


def test_a_closed_consumer_gives_back_at_once_what_it_did_not_settle(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        ids = producer.schedule_many([b"x"] * 20, [now_ms()] * 20)
    with client.consumer(topic, lease=3_600.0, credit=20) as consumer:
        assert consumer.receive(5, timeout=PATIENCE_S)
    seen: Counter[str] = Counter()
    with client.consumer(topic, lease=30.0, credit=20) as consumer:
        while len(seen) < 20:
            batch = consumer.receive(20, timeout=PATIENCE_S)
            assert {message.attempt for message in batch} == {1}
            seen.update(message.id for message in batch)
            consumer.ack(batch)
    assert set(seen) == set(ids)
    assert set(seen.values()) == {1}


def test_a_lease_that_runs_out_is_lost_and_its_message_comes_again(mesh: LocalMesh, topic: str) -> None:
    lost: list[Message] = []
    with Client(mesh.endpoints) as client, client.producer(topic) as producer:
        producer.schedule(b"slow", now_ms())
        with client.consumer(topic, lease=1.0, credit=1, on_lease_lost=lost.append) as consumer:
            (first,) = consumer.receive(1, timeout=PATIENCE_S)
            (second,) = consumer.receive(1, timeout=PATIENCE_S)
            assert (second.id, second.attempt) == (first.id, 2)
            assert second.released_at >= first.released_at + 1_000
            assert second.token > first.token
            assert lost == [first]
            with pytest.raises(StaleLease):
                first.ack(wait=True)
            second.ack(wait=True)


def test_an_extended_lease_holds_longer(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.schedule(b"long work", now_ms())
    message = one(client, topic, lease=1.0)
    message.extend(30.0, wait=True)
    assert message.lease > 20.0
    with client.consumer(topic, lease=1.0, credit=1) as other:
        assert other.receive(1, timeout=2.0) == []
    message.ack(wait=True)
    assert client.describe(topic).leased == 0


def test_a_credit_of_one_reaches_every_partition(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        ids = {key for _ in range(12) for key in producer.schedule_many([b"a", b"b"], now_ms())}
    seen: set[str] = set()
    with client.consumer(topic, lease=30.0, credit=1) as consumer:
        while len(seen) < len(ids):
            (message,) = consumer.receive(1, timeout=PATIENCE_S)
            seen.add(message.id)
            message.ack()
    assert seen == ids


def test_work_is_shared_between_consumers(client: Client, mesh: LocalMesh, topic: str) -> None:
    counts = [0, 0]
    with (
        Client(mesh.endpoints) as another,
        client.consumer(topic, credit=20) as mine,
        another.consumer(topic, credit=20) as theirs,
    ):
        with client.producer(topic) as producer:
            for _ in range(10):
                producer.schedule_many([b"x"] * 20, now_ms() + 50)
        while sum(counts) < 200:
            for at, consumer in enumerate((mine, theirs)):
                batch = consumer.receive(20, timeout=0.2)
                consumer.ack(batch)
                counts[at] += len(batch)
    assert sum(counts) == 200
    assert min(counts) >= 40


def test_the_forecast_and_the_description_count_what_is_there(client: Client, topic: str) -> None:
    second = (now_ms() // 1_000 + 30) * 1_000
    with client.producer(topic) as producer:
        for _ in range(6):
            producer.schedule_many([b"x"] * 50, [second + row * 40 for row in range(50)])
    assert client.forecast(topic, 60) == [(second, 150), (second + 1_000, 150)]
    assert client.forecast(topic, 10) == []
    shown = client.describe(topic)
    assert (shown.scheduled, shown.ready, shown.leased, shown.partitions) == (300, 0, 0, 3)


def test_a_topic_can_be_deleted_and_made_again_empty(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        key = producer.schedule(b"old", now_ms() + 60_000)
    client.delete_topic(topic)
    client.create_topic(topic, partitions=3, replicas=3)
    assert client.describe(topic).scheduled == 0
    with client.producer(topic) as producer:
        with pytest.raises(InvalidRequest, match="or to one that was deleted"):
            producer.cancel(key)
        producer.schedule(b"new", now_ms())
    message = one(client, topic)
    assert message.payload == b"new"
    message.ack(wait=True)


def test_lateness_and_instants_are_what_they_say(client: Client, topic: str) -> None:
    with client.consumer(topic, credit=10) as consumer, client.producer(topic) as producer:
        due = now_ms() + 400
        producer.schedule(b"tick", due)
        (message,) = consumer.receive(1, timeout=PATIENCE_S)
        arrived = time.time() * 1_000
    assert message.due == due <= message.released_at <= arrived + 5
    assert message.lateness == pytest.approx((message.released_at - due) / 1_000, abs=0.001)
    assert message.topic == topic

"""Real processes die under traffic: nothing is lost, nothing is early, nothing comes twice while a lease runs."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from dueq import Client, Message, Outcome
from dueq.errors import MessageLeased, MessageNotFound, OutcomeUnknown
from dueq.local import LocalMesh

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

_PATIENCE_S = 40.0


@pytest.fixture
def mesh() -> Iterator[LocalMesh]:
    with LocalMesh() as found:
        yield found


class Traffic:
    """A producer and a consumer that go on through everything, and what they saw.

    Attributes:
        dues: due of every acknowledged message by id.
        deliveries: (released at, attempt) of every delivery by id.
    """

    def __init__(self, client: Client, topic: str) -> None:
        self._client, self._topic = client, topic
        self.dues: dict[str, int] = {}
        self.deliveries: dict[str, list[tuple[int, int]]] = {}
        self._progress = threading.Condition()
        self._producing = True
        self._consuming = True
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guard, args=(work,)) for work in (self._produce, self._consume)
        ]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._producing = self._consuming = False
        for thread in self._threads:
            thread.join(_PATIENCE_S)
        if self._failure is not None:
            raise self._failure

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            with self._progress:
                self._failure = error
                self._progress.notify_all()

    def _produce(self) -> None:
        pace = threading.Event()
        with self._client.producer(self._topic) as producer:
            while self._producing:
                due = time.time_ns() // 1_000_000 + 200
                try:
                    ids = producer.schedule_many([b"x" * 64] * 10, [due] * 10)
                except OutcomeUnknown as unknown:
                    ids = unknown.retry()
                with self._progress:
                    self.dues.update(dict.fromkeys(ids, due))
                    self._progress.notify_all()
                pace.wait(0.02)

    def _consume(self) -> None:
        with self._client.consumer(self._topic, lease=60.0, credit=200) as consumer:
            while self._consuming:
                for message in consumer.receive(100, timeout=0.2):
                    with self._progress:
                        found = self.deliveries.setdefault(message.id, [])
                        found.append((message.released_at, message.attempt))
                        self._progress.notify_all()
                    message.ack()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        with self._progress:
            held = self._progress.wait_for(lambda: condition() or self._failure is not None, _PATIENCE_S)
        if self._failure is not None:
            raise self._failure
        assert held, f"{len(self.dues)} scheduled, {len(self.deliveries)} delivered"

    def wait_for_more(self, count: int = 200) -> None:
        """Wait until so many more messages have been scheduled and delivered."""
        scheduled, delivered = len(self.dues) + count, len(self.deliveries) + count
        self.wait(lambda: len(self.dues) >= scheduled and len(self.deliveries) >= delivered)

    def finish(self) -> None:
        """Stop producing, wait for what is due, and judge."""
        self._producing = False
        self._threads[0].join(_PATIENCE_S)
        self.wait(lambda: self.dues.keys() <= self.deliveries.keys())
        early = [key for key, due in self.dues.items() if self.deliveries[key][0][0] < due]
        twice = [key for key in self.dues if len(self.deliveries[key]) > 1]
        assert not early
        assert not twice


def leader_of(client: Client, topic: str, mesh: LocalMesh, partition: int = 0) -> int:
    """The number of the broker that leads a partition."""
    leader = client.describe(topic).placement[partition].leader
    return next(i for i, broker in enumerate(mesh.brokers) if broker.broker_id == leader)


def test_a_leader_killed_under_traffic_costs_no_message(mesh: LocalMesh) -> None:
    with Client(mesh.endpoints) as client:
        client.create_topic("t", partitions=3, replicas=3)
        with Traffic(client, "t") as traffic:
            traffic.wait_for_more()
            victim = leader_of(client, "t", mesh)
            mesh.kill(victim)
            traffic.wait_for_more(400)
            mesh.start_broker(victim)
            traffic.wait_for_more(400)
            traffic.finish()


def test_a_follower_killed_under_traffic_costs_no_message(mesh: LocalMesh) -> None:
    with Client(mesh.endpoints) as client:
        client.create_topic("t", partitions=1, replicas=3)
        with Traffic(client, "t") as traffic:
            traffic.wait_for_more()
            victim = (leader_of(client, "t", mesh) + 1) % 3
            mesh.kill(victim)
            traffic.wait_for_more(400)
            mesh.start_broker(victim)
            traffic.wait_for_more()
            traffic.finish()


def test_zookeeper_killed_under_traffic_is_only_a_word_in_the_status(mesh: LocalMesh) -> None:
    with Client(mesh.endpoints) as client:
        client.create_topic("t", partitions=3, replicas=3)
        with Traffic(client, "t") as traffic:
            traffic.wait_for_more()
            mesh.kill_zookeeper()
            traffic.wait_for_more(400)
            degraded = {broker["degraded"] for broker in client.status()["brokers"].values()}
            assert degraded == {"zookeeper"}
            mesh.start_zookeeper()
            traffic.wait(
                lambda: {broker["degraded"] for broker in client.status()["brokers"].values()} == {""}
            )
            traffic.wait_for_more()
            traffic.finish()
        client.create_topic("later", partitions=1, replicas=3)


def test_all_brokers_killed_and_started_again_have_every_message(mesh: LocalMesh) -> None:
    with Client(mesh.endpoints) as client:
        client.create_topic("t", partitions=3, replicas=3)
        with client.producer("t") as producer:
            due = time.time_ns() // 1_000_000 + 15_000
            ids = producer.schedule_many([b"%d" % number for number in range(2_000)], [due] * 2_000)
            producer.move_many(ids[:500], [due - 14_900] * 500)
            assert producer.cancel_many(ids[500:600]) == [Outcome.DONE] * 100
        for number in range(3):
            mesh.kill(number)
        for number in range(3):
            mesh.start_broker(number, wait=False)
        mesh.wait_ready()
        wanted = dict(
            zip(ids[:500] + ids[600:], [b"%d" % n for n in [*range(500), *range(600, 2_000)]], strict=True)
        )
        got: dict[str, bytes] = {}
        with client.consumer("t", lease=60.0, credit=1_000) as consumer:
            deadline = time.monotonic() + _PATIENCE_S
            while len(got) < len(wanted) and time.monotonic() < deadline:
                batch = consumer.receive(500, timeout=1.0)
                for message in batch:
                    assert message.id not in got
                    assert message.released_at >= message.due
                    got[message.id] = message.payload
                if batch:
                    consumer.ack(batch)
        assert got == wanted


def _hold_and_hang(endpoints: list[str], holding: multiprocessing.synchronize.Event) -> None:
    """A consumer process that takes messages and never acknowledges."""
    with Client(endpoints) as client, client.consumer("t", lease=2.0, credit=50) as consumer:
        held: list[Message] = []
        while len(held) < 20:
            held.extend(consumer.receive(20, timeout=1.0))
        holding.set()
        threading.Event().wait(60)


def test_what_a_killed_consumer_held_comes_again_when_its_leases_have_run_out(mesh: LocalMesh) -> None:
    spawn = multiprocessing.get_context("spawn")
    with Client(mesh.endpoints) as client:
        client.create_topic("t", partitions=2, replicas=3)
        with client.producer("t") as producer:
            now = time.time_ns() // 1_000_000
            ids = producer.schedule_many([b"x"] * 20, [now] * 20)
        holding = spawn.Event()
        child = spawn.Process(target=_hold_and_hang, args=(mesh.endpoints, holding))
        child.start()
        try:
            assert holding.wait(_PATIENCE_S)
        finally:
            child.kill()
            child.join(_PATIENCE_S)
            child.close()
        again: dict[str, int] = {}
        with client.consumer("t", lease=30.0, credit=50) as consumer:
            deadline = time.monotonic() + _PATIENCE_S
            while len(again) < 20 and time.monotonic() < deadline:
                batch = consumer.receive(50, timeout=1.0)
                again.update((message.id, message.attempt) for message in batch)
                if batch:
                    consumer.ack(batch)
        assert again.keys() == set(ids)
        # 3 where the leader had leased it to the dead once more before it knew.
        assert all(attempt in (2, 3) for attempt in again.values())


def test_a_thousand_cancels_racing_with_delivery_agree_with_what_was_delivered(mesh: LocalMesh) -> None:
    with Client(mesh.endpoints) as client:
        client.create_topic("t", partitions=3, replicas=3)
        with client.producer("t") as producer, client.consumer("t", lease=60.0, credit=300) as consumer:
            start = time.time_ns() // 1_000_000 + 500
            ids = producer.schedule_many([b"x"] * 1_000, [start + number for number in range(1_000)])
            cancelled: set[str] = set()
            too_late: set[str] = set()

            def cancel() -> None:
                for key in ids:
                    try:
                        producer.cancel(key)
                        cancelled.add(key)
                    except (MessageLeased, MessageNotFound):
                        too_late.add(key)

            racer = threading.Thread(target=cancel)
            racer.start()
            delivered: set[str] = set()
            deadline = time.monotonic() + _PATIENCE_S
            while (
                racer.is_alive() or len(delivered) + len(cancelled) < 1_000
            ) and time.monotonic() < deadline:
                batch = consumer.receive(200, timeout=0.2)
                delivered.update(message.id for message in batch)
                if batch:
                    consumer.ack(batch)
            racer.join(_PATIENCE_S)
        assert cancelled | too_late == set(ids)
        assert not cancelled & delivered
        assert delivered == too_late

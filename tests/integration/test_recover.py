"""`dueq partition recover`: every disk of an ISR is lost, and one replica that was left behind goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest

from dueq import Client
from dueq.cli.main import run
from dueq.local import LocalMesh
from tests.integration.ledger import now_ms
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

_PATIENCE_S = 180.0
_TOPIC = "t"


@pytest.fixture(scope="module")
def one_mesh() -> Iterator[LocalMesh]:
    with LocalMesh() as found:
        with Client(found.endpoints, timeout=_PATIENCE_S) as client:
            client.create_topic(_TOPIC, partitions=1, replicas=3, min_isr=2)
        yield found


@pytest.fixture
def mesh(one_mesh: LocalMesh) -> LocalMesh:
    """The module's mesh with its one topic, all brokers up whatever the test before has left."""
    for number, broker in enumerate(one_mesh.brokers):
        if not broker.running:
            one_mesh.start_broker(number, wait=False)
    one_mesh.wait_ready()
    return one_mesh


@pytest.fixture
def client(mesh: LocalMesh) -> Iterator[Client]:
    with Client(mesh.endpoints, timeout=_PATIENCE_S) as found:
        yield found


def recover(mesh: LocalMesh, *words: str) -> int:
    assert mesh.zookeeper is not None
    return run(["partition", "recover", _TOPIC, "0", "--zookeeper", mesh.zookeeper.address, *words])


def in_sync(client: Client) -> set[str]:
    return set(client.describe(_TOPIC).placement[0].isr)


def schedule(client: Client, *payloads: bytes) -> None:
    """Schedule messages that are due when all is over."""
    with client.producer(_TOPIC) as producer:
        producer.schedule_many(list(payloads), [now_ms() + 1_000] * len(payloads))


def test_what_the_survivor_holds_goes_on_and_what_came_later_is_given_up(
    mesh: LocalMesh, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [broker.broker_id for broker in mesh.brokers]
    until(lambda: in_sync(client) == set(names), "three in sync")
    schedule(client, b"old 1", b"old 2")

    leader = client.describe(_TOPIC).placement[0].leader
    survivor = next(name for name in names if name != leader)
    lost = [number for number, name in enumerate(names) if name != survivor]
    mesh.stop_broker(names.index(survivor))
    until(lambda: in_sync(client) == set(names) - {survivor}, "the survivor has left")
    schedule(client, b"late 1", b"late 2")

    for number in lost:
        mesh.kill(number)
        shutil.rmtree(mesh.brokers[number].data)
    for number in range(3):
        mesh.start_broker(number, wait=False)
    mesh.wait_ready()
    capsys.readouterr()

    assert recover(mesh) == 2
    page = capsys.readouterr().out
    assert "up with another disk" in page
    assert f"--from {survivor} --accept-loss" in page
    assert recover(mesh, "--from", survivor, "--json") == 2
    shown = json.loads(capsys.readouterr().out)
    assert {member["fate"] for member in shown["isr"]} == {"replaced"}
    assert (shown["best"], shown["leader_lives"], shown["refused"]) == (survivor, False, "")
    assert recover(mesh, "--from", names[lost[0]], "--accept-loss") == 1
    assert f"recover from {survivor}" in capsys.readouterr().err

    assert recover(mesh, "--from", survivor, "--accept-loss") == 0
    assert f"{_TOPIC}/0 is served by {survivor}" in capsys.readouterr().out
    schedule(client, b"new")
    payloads: set[bytes] = set()
    with client.consumer(_TOPIC, lease=30.0) as consumer:
        while b"new" not in payloads or len(payloads) < 3:
            batch = consumer.receive(10, timeout=_PATIENCE_S)
            assert batch, f"only {payloads} came"
            consumer.ack(batch)
            payloads.update(message.payload for message in batch)
    assert payloads == {b"old 1", b"old 2", b"new"}
    until(lambda: in_sync(client) == set(names), "three in sync again")
    assert client.describe(_TOPIC).scheduled == 0


def test_a_partition_that_is_led_or_will_be_is_left_alone(
    mesh: LocalMesh, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [broker.broker_id for broker in mesh.brokers]
    until(lambda: bool(client.describe(_TOPIC).placement[0].leader), "a leader")
    leader = client.describe(_TOPIC).placement[0].leader
    other = next(name for name in names if name != leader)
    assert recover(mesh, "--from", other, "--accept-loss") == 1
    assert f"has a leader, {leader}" in capsys.readouterr().err

    # One of three alone can lead nothing, but nothing is lost.
    for number, name in enumerate(names):
        if name != other:
            mesh.kill(number)
    until(lambda: _not_led(mesh, capsys), "the leader's registration is gone")

    def only_the_other_is_up() -> bool:
        assert recover(mesh, "--from", other, "--accept-loss") == 1
        return f"{other} is up with the disk" in capsys.readouterr().err

    until(only_the_other_is_up, "both registrations are gone")


def _not_led(mesh: LocalMesh, capsys: pytest.CaptureFixture[str]) -> bool:
    recover(mesh, "--json")
    return not json.loads(capsys.readouterr().out)["leader_lives"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nowhere", "0"], "there is no topic 'nowhere'"),
        ([_TOPIC, "7"], "has no partition 7"),
        ([_TOPIC, "0", "--from", "b9"], "b9"),
    ],
)
def test_what_is_not_there_is_named(
    mesh: LocalMesh, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mesh.zookeeper is not None
    assert run(["partition", "recover", *words, "--zookeeper", mesh.zookeeper.address]) == 1
    assert why in capsys.readouterr().err

"""Bad input and bad days against real brokers: a clear error, nothing lost, nobody else disturbed."""

from __future__ import annotations

import multiprocessing
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import zmq

from dueq import Client, Message
from dueq.errors import (
    Busy,
    DiskFull,
    DueqError,
    InvalidRequest,
    MessageNotFound,
    PayloadTooLarge,
    StaleLease,
    TopicNotFound,
)
from dueq.limits import DUE_MS_MAX
from dueq.local import LocalMesh
from dueq_codecs.frames import decode, encode
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code, CreateTopicRequest, PeerFrame, Reply
from dueq_codecs.records import RecordKind
from tests.integration.ledger import now_ms
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

_PATIENCE_S = 180.0


def receive(client: Client, topic: str, count: int, ack: bool = True) -> list[Message]:
    """Take `count` messages of a topic."""
    found: list[Message] = []
    deadline = time.monotonic() + _PATIENCE_S
    with client.consumer(topic, lease=30.0, credit=64) as consumer:
        while len(found) < count and time.monotonic() < deadline:
            batch = consumer.receive(count, timeout=1.0)
            if batch and ack:
                consumer.ack(batch)
            found.extend(batch)
    assert len(found) == count
    return found


def works(client: Client, topic: str) -> None:
    """A message goes through: nobody was harmed. (A damaged frame may be a good one by chance: others may come too.)"""
    with client.producer(topic) as producer:
        key = producer.schedule(b"well", now_ms() + 50)
    deadline = time.monotonic() + _PATIENCE_S
    while key not in [message.id for message in receive(client, topic, 1)]:
        assert time.monotonic() < deadline


# ---------------------------------------------------------------- requests


def test_what_was_due_in_the_past_is_delivered_at_once(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        keys = {producer.schedule(b"a", 0), producer.schedule(b"b", now_ms() - 3_600_000)}
    assert {message.id for message in receive(client, topic, 2)} == keys


@pytest.mark.parametrize("due", [-1, DUE_MS_MAX + 1, 1.5, True, "tomorrow"])
def test_a_due_out_of_range_or_of_the_wrong_type_names_itself(
    client: Client, topic: str, due: object
) -> None:
    with client.producer(topic) as producer, pytest.raises(InvalidRequest, match=str(due)):
        producer.schedule(b"x", due)  # type: ignore[arg-type]


def test_a_batch_with_one_bad_row_is_refused_whole_and_names_the_row(client: Client, topic: str) -> None:
    due = now_ms()
    with client.producer(topic) as producer:
        with pytest.raises(InvalidRequest, match="row 3"):
            producer.schedule_many([b"x"] * 5, [due, due, due, DUE_MS_MAX + 1, due])
        key = producer.schedule(b"good", due)
    assert [message.id for message in receive(client, topic, 1)] == [key]
    assert client.describe(topic).scheduled == 0


def test_an_empty_batch_schedules_nothing(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        assert producer.schedule_many([], []) == []


def test_unknown_and_foreign_ids_are_told_apart(client: Client, topic: str) -> None:
    client.create_topic("foreign", partitions=1, replicas=3, exist_ok=True)
    with client.producer(topic) as producer, client.producer("foreign") as other:
        key = producer.schedule(b"x", now_ms() + 60_000)
        unknown = key[:-4] + "0ZZ0"
        with pytest.raises(MessageNotFound):
            producer.cancel(unknown)
        with pytest.raises(InvalidRequest, match="belongs to another topic"):
            other.cancel(key)
        with pytest.raises(InvalidRequest):
            producer.cancel("not an id")
        producer.cancel(key)
        with pytest.raises(MessageNotFound):
            producer.move(key, now_ms())


def test_a_wrong_topic_is_named(client: Client) -> None:
    with pytest.raises(TopicNotFound, match="nowhere"), client.producer("nowhere") as producer:
        producer.schedule(b"x", now_ms())
    with pytest.raises(InvalidRequest, match="a b"):
        client.create_topic("a b")


def test_payloads_of_no_bytes_and_of_64_mib_arrive_as_they_were(client: Client, topic: str) -> None:
    large = random.Random(3).randbytes(64 << 20)
    with client.producer(topic) as producer:
        with pytest.raises(PayloadTooLarge, match=str((64 << 20) + 1)):
            producer.schedule(large + b"x", now_ms())
        empty_key, large_key = producer.schedule(b"", now_ms()), producer.schedule(large, now_ms())
    found = {message.id: message.payload for message in receive(client, topic, 2)}
    assert found == {empty_key: b"", large_key: large}


def test_a_consumer_that_never_acknowledges_keeps_nobody_else_from_anything(
    client: Client, topic: str
) -> None:
    with client.producer(topic) as producer:
        keys = set(producer.schedule_many([b"x"] * 40, [now_ms()] * 40))
    with client.consumer(topic, lease=1.0, credit=10) as idle:
        held = idle.receive(10, timeout=_PATIENCE_S)
        assert held
        done: dict[str, int] = {}
        deadline = time.monotonic() + _PATIENCE_S
        with client.consumer(topic, lease=30.0, credit=10) as busy:
            while done.keys() != keys and time.monotonic() < deadline:
                batch = busy.receive(10, timeout=0.5)
                if batch:
                    busy.ack(batch)
                done.update((message.id, message.attempt) for message in batch)
        assert done.keys() == keys
        with pytest.raises(StaleLease):
            idle.ack(held)


# ---------------------------------------------------------------- raw bytes


@pytest.fixture
def raw(mesh: LocalMesh) -> Iterator[zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(mesh.endpoints[0])
    yield socket
    socket.close(0)
    context.term()


def ask(raw: zmq.Socket[bytes], *frames: bytes | memoryview) -> object:
    raw.send_multipart(frames)
    assert raw.poll(10_000), "no answer"
    return decode(raw.recv_multipart())[0]


def insert_request(uid: int, topic: str) -> tuple[ChangeRequest, bytes]:
    request = ChangeRequest(1, RecordKind.INSERT, topic, uid, b"c" * 16, 1, 0)
    request.due = np.array([now_ms()], np.uint64)
    request.size = np.array([2], np.uint32)
    request.crc = np.array([crc32(b"ab")], np.uint32)
    return request, b"ab"


def test_damaged_frames_are_answered_and_harm_nobody(
    raw: zmq.Socket[bytes], client: Client, topic: str
) -> None:
    uid = client.describe(topic).placement[0].uid
    request, body = insert_request(uid, topic)
    whole = bytes(encode(request, [body])[0])
    chance = random.Random(11)
    for _ in range(300):
        damaged = bytearray(whole[: chance.randint(0, len(whole))])
        for _ in range(chance.randint(1, 4)):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.getrandbits(8)
        if chance.random() < 0.5 and len(damaged) >= 16:
            damaged[12:16] = crc32(damaged[16:], crc32(damaged[:12])).to_bytes(4, "little")
        answer = ask(raw, bytes(damaged), body)
        assert isinstance(answer, Reply | ChangeReply)
    works(client, topic)


def test_a_brokers_frame_on_a_clients_session_is_refused(raw: zmq.Socket[bytes]) -> None:
    answer = ask(raw, *encode(PeerFrame("b2", 1, "b1", 1, 1, 1)))
    assert isinstance(answer, Reply)
    assert answer.code == Code.BAD_FRAME


def test_a_partition_of_another_topic_is_refused(raw: zmq.Socket[bytes], client: Client, topic: str) -> None:
    client.create_topic("foreign", partitions=1, replicas=3, exist_ok=True)
    request, body = insert_request(client.describe("foreign").placement[0].uid, topic)
    answer = ask(raw, *encode(request, [body]))
    assert isinstance(answer, ChangeReply)
    assert answer.code == Code.TOPIC_NOT_FOUND


@pytest.mark.parametrize("rows", [1_025, 70_000])
def test_more_rows_than_a_request_may_have_are_refused_with_the_limit(
    raw: zmq.Socket[bytes], client: Client, topic: str, rows: int
) -> None:
    request, body = insert_request(client.describe(topic).placement[0].uid, topic)
    request.due, request.size, request.crc = (
        np.repeat(column, rows) for column in (request.due, request.size, request.crc)
    )
    answer = ask(raw, *encode(request, [body * rows]))
    assert isinstance(answer, ChangeReply)
    assert (answer.code, answer.text) == (Code.INVALID_REQUEST, f"a request has 1 to 1024 rows, not {rows}")


def test_more_partitions_than_a_topic_may_have_are_refused_by_client_and_broker(
    raw: zmq.Socket[bytes], client: Client
) -> None:
    with pytest.raises(InvalidRequest, match="1025"):
        client.create_topic("wide", partitions=1_025)
    answer = ask(raw, *encode(CreateTopicRequest(1, b"c" * 16, "wide", "timeline", 1_025, 3, 2)))
    assert isinstance(answer, Reply)
    assert (answer.code, answer.text) == (
        Code.INVALID_REQUEST,
        "a topic has 1 to 1024 partitions, not 1025",
    )


def test_noise_on_the_port_is_not_the_end_of_it(mesh: LocalMesh, client: Client, topic: str) -> None:
    import socket

    host, port = mesh.endpoints[0].removeprefix("tcp://").split(":")
    chance = random.Random(7)
    for _ in range(20):
        with socket.create_connection((host, int(port)), timeout=5) as plain:
            plain.sendall(chance.randbytes(2_000))
    works(client, topic)


def test_a_frame_over_the_limit_ends_its_own_connection_only(
    raw: zmq.Socket[bytes], client: Client, topic: str
) -> None:
    raw.send(b"x" * (5 << 20))
    works(client, topic)


# ---------------------------------------------------------------- bad days


def _schedule_without_end(endpoints: list[str], topic: str, begun: multiprocessing.synchronize.Event) -> None:
    with Client(endpoints) as client, client.producer(topic) as producer:
        while True:
            producer.schedule_many([b"x" * 200] * 5_000, [now_ms()] * 5_000)
            begun.set()


def test_a_producer_killed_in_the_middle_of_a_batch_leaves_whole_runs(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    spawn = multiprocessing.get_context("spawn")
    begun = spawn.Event()
    child = spawn.Process(target=_schedule_without_end, args=(mesh.endpoints, topic, begun))
    child.start()
    try:
        assert begun.wait(_PATIENCE_S)
    finally:
        child.kill()
        child.join(_PATIENCE_S)
        child.close()
    seen: dict[str, bytes] = {}
    with client.consumer(topic, lease=60.0, credit=2_000) as consumer:
        while batch := consumer.receive(2_000, timeout=1.0):
            consumer.ack(batch)
            seen.update((message.id, message.payload) for message in batch)
    assert len(seen) >= 5_000
    assert set(seen.values()) == {b"x" * 200}
    works(client, topic)


def test_a_data_folder_of_another_broker_is_refused_with_both_names(tmp_path: Path) -> None:
    with LocalMesh(tmp_path / "mesh", brokers=1, zookeeper=False):
        pass
    folder = tmp_path / "mesh" / "brokers" / "b1"
    command = ["python", "-m", "dueq.cli.main", "broker", "--id", "other", "--data", str(folder)]
    import sys

    command[0] = sys.executable
    ended = subprocess.run(
        [*command, "--listen", "tcp://127.0.0.1:0", "--no-zookeeper"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 1
    assert "belongs to broker 'b1', not to 'other'" in ended.stderr


def test_a_damaged_store_is_set_aside_and_filled_anew(tmp_path: Path) -> None:
    with LocalMesh(tmp_path / "mesh") as mesh, Client(mesh.endpoints) as client:
        client.create_topic("t", partitions=2, replicas=3)
        with client.producer("t") as producer:
            keys = set(producer.schedule_many([b"x" * 100] * 500, [now_ms() + 4_000] * 500))
        mesh.kill(0)
        timeline = mesh.brokers[0].data / "timeline"
        for file in sorted([*timeline.glob("*.log"), *timeline.glob("*.ldb")]):
            data = bytearray(file.read_bytes())
            for at in range(50, len(data), 997):
                data[at] ^= 0xFF
            file.write_bytes(data)
        mesh.start_broker(0)
        assert any("damaged" in path.name for path in mesh.brokers[0].data.iterdir())
        assert "set_aside" in mesh.brokers[0].log.read_text()
        found: set[str] = set()
        deadline = time.monotonic() + _PATIENCE_S
        with client.consumer("t", lease=30.0, credit=500) as consumer:
            while found != keys and time.monotonic() < deadline:
                batch = consumer.receive(500, timeout=1.0)
                if batch:
                    consumer.ack(batch)
                found.update(message.id for message in batch)
        assert found == keys
        until(
            lambda: all(len(part.isr) == 3 for part in client.describe("t").placement),
            "the ISR is whole again",
        )


def test_a_full_disk_refuses_inserts_and_takes_acks(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        with LocalMesh(disk / "mesh", brokers=1, zookeeper=False) as mesh, Client(mesh.endpoints) as client:
            client.create_topic("t", partitions=1, replicas=1)
            with client.producer("t") as producer:
                keys = [producer.schedule(b"x", now_ms() + 1_000)]
                later = producer.schedule(b"y", now_ms() + 600_000)
                refused = None
                for number in range(200):
                    chunk = random.Random(number).randbytes(1 << 20)
                    try:
                        keys.append(producer.schedule(chunk, now_ms() + 1_000, timeout=10))
                    except DiskFull as error:
                        refused = error
                        break
                    except Busy:
                        continue  # compactions of a busy machine take their time
                assert refused is not None
                producer.cancel(later)
            assert {message.id for message in receive(client, "t", len(keys))} == set(keys)
            assert mesh.brokers[0].running
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


_WITHOUT_FILES = """
import os, resource, sys
from dueq import Client

with Client(sys.argv[2:]) as client, client.producer(sys.argv[1]) as producer:
    producer.schedule(b"short", 0)
    files = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    producer.schedule(b"long" * 50_000, 0, timeout=60.0)
"""


def test_a_client_that_may_open_no_more_files_schedules_long_payloads(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    """For a frame that is not copied pyzmq wants files and a thread, once in a process."""
    command = [sys.executable, "-c", _WITHOUT_FILES, topic, *mesh.endpoints]
    ended = subprocess.run(command, stderr=subprocess.PIPE, timeout=_PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    assert sorted(map(len, (message.payload for message in receive(client, topic, 2)))) == [5, 200_000]


def test_every_error_is_a_dueq_error(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        for wrong in (
            lambda: producer.schedule("text", 1),
            lambda: producer.move("x", 1),
            lambda: client.forecast("?"),
        ):
            with pytest.raises(DueqError):
                wrong()

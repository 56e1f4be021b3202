"""A mesh of two builds: its brokers are replaced one at a time under traffic, and nothing is lost.

The older build is the present code with a lower feature level, or an earlier commit of this repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from dueq import Client
from dueq.errors import DueqError
from dueq.local import LocalMesh
from dueq.storage.ordered import layout
from dueq.storage.ordered.leveldb import LevelDbEngine
from dueq_codecs.frames import decode_record
from dueq_codecs.records import FEATURE_LEVEL, Record
from tests.integration.ledger import now_ms
from tests.integration.traffic import Traffic
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
EARLIER = "7486f6011ee3c5f47ae298b0af80ae24e4405aec"
"""The first commit with the frames of today: older ones carry pushes otherwise, and were never released."""
LEVEL = "DUEQ_TEST_FEATURE_LEVEL"
OLD, NEW = FEATURE_LEVEL, FEATURE_LEVEL + 1


@contextmanager
def build(level: int, tree: Path | None = None) -> Iterator[None]:
    """Processes that are started meanwhile are of this build; without a tree, of the present code."""
    before = os.environ.copy()
    os.environ[LEVEL] = str(level)
    if tree is not None:
        del os.environ[LEVEL]
        os.environ["PYTHONPATH"] = f"{tree / 'mesh'}{os.pathsep}{tree / 'codecs'}"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of an earlier commit. All tests share it, and what Python compiles of it."""
    tree = tmp_path_factory.mktemp("earlier")
    made = subprocess.run(
        ["git", "-C", str(ROOT), "archive", EARLIER, "mesh", "codecs"], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"the commit {EARLIER} is not here: {made.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(made.stdout)) as archive:
        for member in archive:
            source = archive.extractfile(member) if member.isfile() else None
            if source is not None:
                target = tree / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read())
    return tree


def partitions_of(client: Client, topic: str) -> list[dict[str, Any]]:
    """Each partition as the status shows it; nothing while some broker does not answer."""
    try:
        found: list[dict[str, Any]] = client.status(timeout=5.0)["topics"][topic]["partitions"]
    except (DueqError, KeyError):
        return []
    return found


def whole(client: Client, topic: str) -> bool:
    """Whether every partition has all of its replicas in sync."""
    found = partitions_of(client, topic)
    return bool(found) and all(len(part["isr"]) == len(part["replicas"]) for part in found)


def records_of(folder: Path) -> list[Record]:
    """Every record in the logs of a data folder, in the order of partition and sequence."""
    timeline = LevelDbEngine(folder / "timeline", write_buffer_bytes=1 << 20)
    try:
        return [
            decode_record(row[layout.LINK.size :])
            for key, row in timeline.scan(layout.FIRST_UID, layout.BEHIND_ALL)
            if key[3:4] == b"L"
        ]
    finally:
        timeline.close()


def replace(mesh: LocalMesh, number: int, client: Client, topic: str) -> int:
    """Start a broker anew with the build of now; returns when it had stopped, Unix ms."""
    mesh.stop_broker(number)
    stopped_at_ms = now_ms()
    mesh.start_broker(number)
    until(lambda: whole(client, topic), f"b{number + 1} is in sync")
    return stopped_at_ms


def levels_of(client: Client, topic: str) -> list[int]:
    """The level of each partition; a build that knows of no levels has the older one."""
    return [part.get("feature_level", OLD) for part in partitions_of(client, topic)]


def test_brokers_are_replaced_one_at_a_time_under_traffic(earlier: Path, tmp_path: Path) -> None:
    """One of them goes back and forth; the level rises after the last one, and not before."""
    with build(OLD, earlier):
        mesh = LocalMesh(tmp_path / "mesh")
        mesh.start()
    try:
        with Client(mesh.endpoints) as client:
            client.create_topic("rolled", partitions=3, replicas=3)
            with Traffic(mesh.endpoints, "rolled") as traffic:
                traffic.go_on()
                for number, newer in ((0, True), (1, True), (1, False), (1, True), (2, True)):
                    with build(NEW) if newer else build(OLD, earlier):
                        last_at_ms = replace(mesh, number, client, "rolled")
                    traffic.go_on()
                    if number < 2:
                        assert max(levels_of(client, "rolled"), default=OLD) < NEW, (
                            "an older build has a replica"
                        )
                until(
                    lambda: levels_of(client, "rolled") == [NEW] * 3, "every partition has reached the level"
                )
                traffic.go_on()
                traffic.finish()
            brokers = client.status()["brokers"]
            assert {broker["feature_level"] for broker in brokers.values()} == {NEW}
    finally:
        mesh.stop()
    for broker in mesh.brokers:
        newer_records = [record for record in records_of(broker.data) if record.version == NEW]
        assert newer_records, "records carry the level from then on"
        assert min(record.stamp for record in newer_records) >= last_at_ms - 1_000, "and not before"


OLDER_CLIENT = """
import sys
from dueq import Client, __file__
assert __file__.startswith(sys.argv[1]), __file__
with Client(sys.argv[2:]) as client:
    for topic in ("older-timeline", "older-priority", "older-fair"):
        with client.producer(topic) as producer, client.consumer(topic) as consumer:
            ids = producer.schedule_many([b"a", b"b", b"c"], 1 << 47, keys=["k", None, None])
            producer.move(ids[0], 0)
            producer.cancel(ids[1])
            [message] = consumer.receive(1, timeout=30.0)
            assert (message.id, message.payload, message.key) == (ids[0], b"a", "k"), message
            message.ack(wait=True)
            shown = {each.id for each in client.browse(topic)}
            assert ids[2] in shown and len(shown) == 2, shown
        assert client.describe(topic).scheduled == 2
"""


def test_a_client_of_the_earlier_commit_works_with_topics_of_all_kinds(
    mesh: LocalMesh, client: Client, earlier: Path
) -> None:
    """What it does not know, such as ranks and groups, is there and does no harm."""
    for kind in ("timeline", "priority", "fair"):
        client.create_topic(f"older-{kind}", kind=kind, partitions=2, replicas=3)
        marked = {"priority": {"rank": 7}, "fair": {"rank": 7, "group": "acme.eu"}}.get(kind, {})
        with client.producer(f"older-{kind}") as producer:
            producer.schedule(b"newer", 1 << 47, headers={"a": "b"}, **marked)
    done = subprocess.run(
        [sys.executable, "-c", OLDER_CLIENT, str(earlier), *mesh.endpoints],
        env=os.environ | {"PYTHONPATH": f"{earlier / 'mesh'}{os.pathsep}{earlier / 'codecs'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    for kind in ("timeline", "priority", "fair"):
        client.delete_topic(f"older-{kind}")


def test_a_broker_taken_back_after_the_last_one_stops_its_partitions_and_says_why(tmp_path: Path) -> None:
    """The others go on; the newer build takes up what it has left. The older one is this code at a lower level."""
    with build(OLD):
        mesh = LocalMesh(tmp_path / "mesh")
        mesh.start()
    try:
        with Client(mesh.endpoints) as client:
            client.create_topic("taken-back", partitions=1, replicas=3)
            with Traffic(mesh.endpoints, "taken-back") as traffic:
                with build(NEW):
                    for number in range(3):
                        assert max(levels_of(client, "taken-back"), default=OLD) < NEW, (
                            "an older build has a replica"
                        )
                        replace(mesh, number, client, "taken-back")
                until(lambda: levels_of(client, "taken-back") == [NEW], "the level has risen")
                traffic.go_on()
                mesh.stop_broker(2)
                with build(OLD):
                    mesh.start_broker(2)

                def stopped() -> bool:
                    found = partitions_of(client, "taken-back")
                    return bool(found) and found[0]["held"].get("b3", {}).get("role") == "stopped"

                until(stopped, "b3 shows that it is stopped")
                assert f"feature level {NEW}, this build has {OLD}" in mesh.brokers[2].log.read_text()
                traffic.go_on()
                mesh.stop_broker(2)
                with build(NEW):
                    mesh.start_broker(2)
                until(lambda: not stopped() and whole(client, "taken-back"), "b3 has taken it up")
                traffic.go_on()
                traffic.finish()
    finally:
        mesh.stop()

"""The compare-and-set of a recovery against a real ZooKeeper: when somebody was faster, when the answer is lost."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from dueq.cluster.layout import Layout
from dueq.cluster.recovering import Holding, PartitionChanged, Recovering, RecoveryRefused, connect
from dueq.cluster.server import ZooKeeperServer
from dueq.cluster.znodes import decode_node, encode_node, encode_registration, encode_topic
from dueq.core.ports.membership import Member, PartitionAssignment, PartitionNode, Registration, Topic
from dueq.errors import OutcomeUnknown

pytestmark = pytest.mark.integration

UID = 4
LOST = PartitionNode("b1", 11, 5, (Member("b1", "s1"), Member("b2", "s2")))
RECOVERED = PartitionNode("", 0, 5, (Member("b3", "s3"),))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    found = ZooKeeperServer(Path(tmp_path_factory.mktemp("zookeeper")))
    found.start()
    yield found
    found.stop()


@dataclass
class Cluster:
    """The state after the loss: a topic, a node that names lost disks, and b3, which lives."""

    address: str
    layout: Layout
    client: Any

    def node(self) -> PartitionNode:
        return decode_node(self.client.get(self.layout.partition(UID))[0])

    def set(self, node: PartitionNode) -> None:
        self.client.set(self.layout.partition(UID), encode_node(node))

    def register(self, broker_id: str, store_id: str) -> None:
        value = encode_registration(Registration(broker_id, 50, store_id, f"tcp://{broker_id}:1"))
        self.client.create(self.layout.broker(broker_id), value, ephemeral=True)


@pytest.fixture
def cluster(server: ZooKeeperServer) -> Iterator[Cluster]:
    root = f"/{uuid.uuid4().hex}"
    client = KazooClient(server.address)
    client.start()
    found = Cluster(server.address + root, Layout(root), client)
    for path in found.layout.folders():
        client.ensure_path(path)
    topic = Topic("t", "00" * 16, "timeline", (PartitionAssignment(UID, ("b1", "b2", "b3")),), 3, 2)
    client.create(found.layout.topic("t"), encode_topic(topic))
    client.create(found.layout.partition(UID), encode_node(LOST))
    found.register("b3", "s3")
    yield found
    client.stop()
    client.close()


@pytest.fixture
def recovering(cluster: Cluster) -> Iterator[Recovering]:
    with connect(cluster.address, 10.0) as found:
        yield found


class LosesAnswer:
    """A connection that breaks under the set: after it was carried out, or before."""

    def __init__(self, client: Any, *, carried_out: bool) -> None:
        self._client, self._carried_out = client, carried_out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def set_async(self, path: str, value: bytes, version: int) -> Any:
        if self._carried_out:
            self._client.set(path, value, version)
        broken = self._client.handler.async_result()
        broken.set_exception(ConnectionLoss())
        return broken


def all_answer(living: Mapping[str, Registration], uid: int) -> dict[str, Holding]:
    return dict.fromkeys(living, Holding("follower", 4, 120, 118))


def losing(cluster: Cluster, *, carried_out: bool) -> Recovering:
    return Recovering(LosesAnswer(cluster.client, carried_out=carried_out), cluster.layout, "zk:1", 10.0)


def test_the_node_names_the_survivor_and_no_leader_and_keeps_its_epoch(
    cluster: Cluster, recovering: Recovering
) -> None:
    facts = recovering.look("t", 0, all_answer)
    assert (facts.version, facts.node, list(facts.registrations)) == (0, LOST, ["b3"])
    recovering.accept_loss(facts, "b3")
    assert cluster.node() == recovering.node(facts) == RECOVERED


def test_what_has_changed_since_it_was_looked_at_stays(cluster: Cluster, recovering: Recovering) -> None:
    facts = recovering.look("t", 0, all_answer)
    other = PartitionNode("b2", 22, 6, LOST.isr)
    cluster.set(other)
    with pytest.raises(PartitionChanged, match="look again"):
        recovering.accept_loss(facts, "b3")
    assert cluster.node() == other


def test_a_member_that_came_up_after_the_look_is_seen(cluster: Cluster, recovering: Recovering) -> None:
    facts = recovering.look("t", 0, all_answer)
    cluster.register("b2", "s2")
    with pytest.raises(RecoveryRefused, match="b2 is up with the disk s2"):
        recovering.accept_loss(facts, "b3")
    assert cluster.node() == LOST


def test_a_life_that_began_after_the_look_has_not_said_what_it_holds(
    cluster: Cluster, recovering: Recovering
) -> None:
    cluster.register("b2", "empty")
    facts = recovering.look("t", 0, all_answer)
    cluster.client.delete(cluster.layout.broker("b2"))
    cluster.register("b2", "another")
    with pytest.raises(RecoveryRefused, match="b2 is up and does not say what it holds"):
        recovering.accept_loss(facts, "b3")
    assert cluster.node() == LOST


def test_a_lost_answer_to_a_set_that_happened_is_a_success(cluster: Cluster) -> None:
    recovering = losing(cluster, carried_out=True)
    recovering.accept_loss(recovering.look("t", 0, all_answer), "b3")
    assert cluster.node() == RECOVERED


def test_a_lost_answer_to_a_set_that_did_not_happen_is_said_to_be_unknown(cluster: Cluster) -> None:
    recovering = losing(cluster, carried_out=False)
    with pytest.raises(OutcomeUnknown, match="had not happened when it was read again"):
        recovering.accept_loss(recovering.look("t", 0, all_answer), "b3")
    assert cluster.node() == LOST


def test_a_topic_that_was_deleted_meanwhile_is_named(cluster: Cluster, recovering: Recovering) -> None:
    cluster.client.delete(cluster.layout.partition(UID))
    with pytest.raises(PartitionChanged, match="has just been deleted"):
        recovering.look("t", 0, all_answer)

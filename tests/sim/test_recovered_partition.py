"""Two disks of three are lost for good, and a person lets the third replica, which was left behind, go on."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.ports.membership import CompareAndSet, CoordinatorEvent, Member, PartitionNode, Registration
from dueq_chaos.sim.environment.coordinator import Session
from dueq_chaos.sim.environment.mesh import SimMesh

_SECOND_US = 1_000_000


class Story:
    """One partition on b1, b2, b3; a survivor that stopped before the last messages came."""

    def __init__(self, seed: int, log_retain_bytes: int) -> None:
        self.mesh = SimMesh(seed, log_retain_bytes=log_retain_bytes)
        (self.uid,) = self.mesh.create_topic("t", partitions=1)
        self._producer = self.mesh.producer()
        leader = self.mesh.leader_of(self.uid)
        self.survivor = next(name for name in self.mesh.names if name != leader)

    def schedule(self, word: str, batches: int) -> None:
        """Schedule batches of 20 messages that are due long after the story."""
        due_ms = self.mesh.world.wall_us // 1000 + 3_600_000
        for batch in range(batches):
            payloads = [f"{word} {batch} {row}".encode() * 20 for row in range(20)]
            self._producer.schedule("t", self.uid, payloads, [due_ms] * 20)
        assert self.mesh.world.run_until(self.mesh.quiet, 60 * _SECOND_US)

    def lose_the_isr(self) -> None:
        """The survivor falls behind; then everybody else's disk is replaced, and all start again."""
        mesh, world = self.mesh, self.mesh.world
        mesh.nodes[self.survivor].crash(goodbye=True)
        assert world.run_until(lambda: len(self.node.isr) == 2, 20 * _SECOND_US)
        self.schedule("late", 5)
        for name, node in mesh.nodes.items():
            if name != self.survivor:
                node.crash(goodbye=True)
                node.disk.lose()
        world.run(5 * _SECOND_US)
        for node in mesh.nodes.values():
            node.start()
        world.run(10 * _SECOND_US)

    def recover(self) -> None:
        """Recover the partition, as `dueq partition recover --accept-loss` does."""
        mesh = self.mesh
        version, node = mesh.coordinator.nodes[self.uid]
        store_id = mesh.coordinator.registrations[self.survivor].store_id
        wanted = PartitionNode("", 0, node.epoch, (Member(self.survivor, store_id),))
        events: list[CoordinatorEvent] = []
        person = Session(mesh.coordinator, Registration("person", 1, "", ""), events.append)
        person.connected = True
        mesh.coordinator.order(person, CompareAndSet(1, self.uid, version, wanted))

    @property
    def node(self) -> PartitionNode:
        """The partition's node."""
        return self.mesh.coordinator.nodes[self.uid][1]


@pytest.mark.parametrize("log_retain_bytes", [limits.LOG_RETAIN_BYTES, 20_000], ids=["log", "snapshot"])
@pytest.mark.parametrize("seed", range(3))
def test_the_survivor_commits_nothing_alone_and_serves_once_a_follower_is_level(
    seed: int, log_retain_bytes: int
) -> None:
    story = Story(seed, log_retain_bytes)
    mesh, world = story.mesh, story.mesh.world
    story.schedule("old", 30)
    world.run(20 * _SECOND_US)
    story.schedule("older", 10)
    story.lose_the_isr()
    assert mesh.leader_of(story.uid) is None

    core = mesh.nodes[story.survivor].core
    assert core is not None
    partition = core.partition(story.uid)
    assert partition is not None
    assert (partition.replica.log.start > 1) == (log_retain_bytes < limits.LOG_RETAIN_BYTES)
    committed = partition.replica.commit
    story.recover()

    def served() -> bool:
        if len(story.node.isr) < 2:
            assert partition.replica.commit == committed
        return mesh.leader_of(story.uid) is not None

    assert world.run_until(served, 30 * _SECOND_US), "\n".join(world.trace[-40:])
    assert world.run_until(mesh.whole, 30 * _SECOND_US), "\n".join(world.trace[-40:])
    assert partition.timeline.scheduled_count == 40 * 20
    story.schedule("new", 2)
    assert partition.timeline.scheduled_count == 42 * 20
    assert mesh.failures() == []

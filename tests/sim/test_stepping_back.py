"""A leader that should not lead hands over when another can take it. A replica out of reach holds up no log."""

from __future__ import annotations

import pytest

from dueq.core.ports.events import StorePressure
from dueq_chaos.sim.environment.clients import SimProducer
from dueq_chaos.sim.environment.mesh import SimMesh

_DUE_MS = 3_600_000


def load(mesh: SimMesh, producer: SimProducer, uid: int, count: int, size: int = 8) -> None:
    """Schedule messages one by one, far ahead."""
    due_ms = mesh.world.wall_us // 1_000 + _DUE_MS
    for number in range(count):
        producer.schedule("t", uid, [b"%0*d" % (size, number)], [due_ms])
        mesh.world.run(3_000)


@pytest.mark.parametrize("seed", [3, 4])
def test_an_almost_full_disk_hands_over_once_somebody_can_be_elected(seed: int) -> None:
    mesh = SimMesh(seed)
    (uid,) = mesh.create_topic("t", 1)
    producer = mesh.producer()
    load(mesh, producer, uid, 20)
    leader = mesh.leader_of(uid)
    for name in mesh.names:
        mesh.coordinator.cut_off(name)
    mesh.world.run(8_000_000)
    mesh.nodes[leader].receive(StorePressure("disk_full", True))
    mesh.world.run(20_000_000)
    assert mesh.leader_of(uid) == leader
    mesh.calm()
    mesh.world.run(20_000_000)
    assert mesh.leader_of(uid) not in ("", None, leader)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_follower_out_of_reach_does_not_hold_the_log(seed: int) -> None:
    mesh = SimMesh(seed, log_retain_bytes=2_000)
    (uid,) = mesh.create_topic("t", 1)
    producer = mesh.producer()
    load(mesh, producer, uid, 20)
    leader = mesh.leader_of(uid)
    away = next(name for name in mesh.names if name != leader)
    mesh.network.isolate(away, mesh.names)
    load(mesh, producer, uid, 100, size=100)
    mesh.world.run(40_000_000)
    load(mesh, producer, uid, 100, size=100)
    core = mesh.nodes[leader].core
    assert core is not None
    replica = core.partition(uid).replica
    assert replica.log.start > 100
    mesh.calm()
    mesh.world.run(30_000_000)
    assert not mesh.failures()
    back = mesh.nodes[away].core
    assert back is not None
    assert back.partition(uid).replica.log.end == replica.log.end

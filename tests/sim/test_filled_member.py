"""A member of the ISR whose data was damaged is filled as one, and its leader dies before it has caught up."""

from __future__ import annotations

from random import Random

import pytest

from dueq import limits
from dueq.core.replication.replica import Replica
from dueq_chaos.sim.environment.mesh import SimMesh

_SECOND_US = 1_000_000


@pytest.mark.parametrize("seed", range(6))
def test_who_was_filled_leads_only_after_it_holds_what_its_disk_had_acked(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = SimMesh(seed)
    world = mesh.world
    (uid,) = mesh.create_topic("t", partitions=1)
    producer = mesh.producer()
    leader = mesh.leader_of(uid)
    assert leader is not None
    away, filled = [name for name in mesh.names if name != leader]

    def schedule(batches: int) -> None:
        due_ms = world.wall_us // 1000 + 3_600_000
        for _ in range(batches):
            producer.schedule("t", uid, [b"x" * 100] * 20, [due_ms] * 20)
        assert world.run_until(mesh.quiet, 60 * _SECOND_US)

    def replica(name: str) -> Replica | None:
        core = mesh.nodes[name].core
        partition = core.partition(uid) if core is not None else None
        return partition.replica if partition is not None else None

    def is_unproven() -> bool:
        seen = replica(filled)
        return seen is not None and seen.unproven

    schedule(10)
    world.run(20 * _SECOND_US)
    mesh.nodes[away].crash(goodbye=True)
    assert world.run_until(lambda: len(mesh.coordinator.nodes[uid][1].isr) == 2, 20 * _SECOND_US)
    monkeypatch.setattr(limits, "CHECKPOINT_MS", 3_600_000)  # so that the snapshot lacks what comes now
    schedule(10)
    led = replica(leader)
    assert led is not None
    committed = led.commit
    mesh.nodes[filled].crash()
    assert mesh.nodes[filled].disk.damage(uid, Random(seed))
    mesh.nodes[filled].start()
    assert world.run_until(is_unproven, 60 * _SECOND_US), "\n".join(world.trace[-40:])
    holds = replica(filled)
    assert holds is not None
    assert holds.log.end < committed
    mesh.nodes[leader].crash(goodbye=True)
    mesh.nodes[filled].crash()
    mesh.nodes[filled].start()
    mesh.nodes[away].start()
    world.run(20 * _SECOND_US)
    assert mesh.leader_of(uid) is None
    mesh.nodes[leader].start()
    assert world.run_until(mesh.whole, 60 * _SECOND_US), "\n".join(world.trace[-40:])
    assert world.run_until(lambda: not is_unproven(), _SECOND_US), "it is told the commit position"
    schedule(2)
    assert mesh.failures() == []

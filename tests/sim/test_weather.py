"""The weather by which consumers are judged is fine only while nothing holds up what they send."""

from __future__ import annotations

from dueq_chaos.sim.environment import scale
from dueq_chaos.sim.environment.mesh import SimMesh

_FEW = (("DEDUP_WINDOW", 8), ("REQUESTS_IN_FLIGHT_MAX", 4))


def fine_on_slow_disks() -> bool:
    mesh = SimMesh(1, 3)
    [uid] = mesh.create_topic("t", 1, 3, 2)
    mesh.calm()
    mesh.world.run(6_000_000)
    assert mesh.weather(uid) is not None
    mesh.nodes[mesh.names[1]].disk.slow_us = 600_000
    return mesh.weather(uid) is not None


def test_requests_that_wait_for_their_turn_behind_slow_disks_are_held_up() -> None:
    with scale.scaled(_FEW):
        assert not fine_on_slow_disks()


def test_slow_disks_hold_up_nothing_where_many_requests_may_be_under_way() -> None:
    assert fine_on_slow_disks()

"""The expectations of a mesh in which a mishap goes on."""

from __future__ import annotations

from random import Random

import pytest

from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.storms.mishaps import Mishaps
from dueq_chaos.sim.storms.plan import MISHAPS

_WATCH_US = 3_000_000
_CREATED_US = 1_000_000
"""How long before leaders are expected another topic is created."""
_STAYS_UP = 3
"""With this seed the broker is not restarted, and keeps its coordinator."""
_TOPIC_BEFORE_NODE = 3
"""With this seed the broker has read of the topic by then, but not its node."""


def _with_an_older_build() -> SimMesh:
    """A sole broker whose build is older, until shortly before leaders are expected."""
    mesh = SimMesh(_TOPIC_BEFORE_NODE, brokers=1)
    mesh.create_topic("old", partitions=1, replicas=1, min_isr=1)
    mesh.coordinator.watch_us = _WATCH_US
    mishaps = Mishaps(mesh, lambda random, requests, soon_ms, late_ms: None)
    mishaps.kinds["older build"]("b1", Random(_STAYS_UP))
    mesh.world.run(MISHAPS["older build"] - 500_000 - _CREATED_US)
    return mesh


def test_nobody_is_expected_to_lead_a_partition_whose_node_no_broker_has_read() -> None:
    mesh = _with_an_older_build()
    mesh.order_topic("new", ["b1"])
    mesh.world.run(_CREATED_US)
    core = mesh.nodes["b1"].core
    assert core is not None
    new = core.partition(2)
    assert new is not None
    assert new.replica.node is None
    assert mesh.history.wrong == []


def test_a_partition_that_was_there_before_the_mishap_has_to_be_led(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = _with_an_older_build()
    monkeypatch.setattr(mesh, "leader_of", lambda uid: None)
    mesh.world.run(_CREATED_US)
    assert len(mesh.history.wrong) == 1
    assert "partition 1 is not served" in mesh.history.wrong[0]

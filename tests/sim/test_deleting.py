"""A topic is deleted while its brokers write: nobody dies of it."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_codecs.digest import request_digest
from dueq_codecs.messages import ChangeRequest, DeleteTopicRequest
from dueq_codecs.records import RecordKind

_ROWS = 500


def insert(number: int, uid: int, due_ms: int) -> ChangeRequest:
    request = ChangeRequest(number, RecordKind.INSERT, "t", uid, b"c" * 16, number, 0)
    request.due = np.full(_ROWS, due_ms, np.uint64)
    request.size = np.full(_ROWS, 20, np.uint32)
    request.crc = np.full(_ROWS, crc32(b"x" * 20), np.uint32)
    request.digest = request_digest(request)
    return request


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_topic_deleted_under_load_ends_no_broker(seed: int, replicas: int) -> None:
    mesh = SimMesh(seed, log_retain_bytes=2_000)
    (uid,) = mesh.create_topic("t", 1, replicas=replicas, min_isr=min(2, replicas))
    for node in mesh.nodes.values():
        node.disk.slow_us = 400_000
    due_ms = mesh.world.wall_us // 1_000 + 1_000_000
    leader = mesh.leader_of(uid)
    assert leader is not None
    for number in range(1, 41):
        mesh.client_send("client", leader, insert(number, uid, due_ms), [b"x" * 20 * _ROWS])
        mesh.world.run(mesh.world.random.randint(1_000, 60_000))
    mesh.client_send("client", leader, DeleteTopicRequest(99, "t"), [])
    mesh.world.run(8_000_000)
    assert not mesh.failures()
    assert all(node.core is not None and node.core.partition(uid) is None for node in mesh.nodes.values())


def test_a_broker_without_a_replica_forgets_who_led_a_deleted_topic() -> None:
    """Topics come and go for years, and every leader tells every broker."""
    mesh = SimMesh(1, brokers=3)
    mesh.create_topic("stays", 4, replicas=2, min_isr=1)
    for number in range(5):
        mesh.create_topic(f"goes {number}", 4, replicas=2, min_isr=1)
        mesh.world.run(3_000_000)
        mesh.coordinator.delete(f"goes {number}")
        mesh.world.run(3_000_000)
    for node in mesh.nodes.values():
        assert node.core is not None
        assert len(node.core._routing._leaders) == 4

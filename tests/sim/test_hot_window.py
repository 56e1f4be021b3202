"""The hot window finds its size, and stays there."""

from __future__ import annotations

import pytest

from dueq.core.state.residency import Residency
from dueq_chaos.sim.environment.mesh import SimMesh


@pytest.mark.parametrize(("hot_rows", "inside"), [(5, 4), (7, 6), (8, 4)])
def test_a_window_that_has_shrunk_does_not_grow_again_at_once(
    hot_rows: int, inside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that wait for their checkpoint are in memory, too. Many of them just beyond its end would make it shrink
    and grow by turns, as fast as a disk can read.
    """
    mesh = SimMesh(1, hot_rows_total=hot_rows)
    (uid,) = mesh.create_topic("t", partitions=1)
    producer = mesh.producer()
    due_ms = mesh.world.wall_us // 1000 + 3_600_000
    producer.schedule(
        "t", uid, [b"%d" % row for row in range(20)], [due_ms + 1000 * row for row in range(20)]
    )
    mesh.world.run(5_000_000)
    asked = []
    wants_scan = Residency.wants_scan

    def counted(residency: Residency) -> tuple[int, int, int] | None:
        wanted = wants_scan(residency)
        asked.extend([wanted] if wanted is not None else [])
        return wanted

    monkeypatch.setattr(Residency, "wants_scan", counted)
    producer.schedule("t", uid, [b"makes a checkpoint"], [due_ms + 3_600_000])
    mesh.world.run(100_000)
    beyond_ms = due_ms + 1000 * (inside - 1) + 500
    producer.schedule("t", uid, [b"just beyond %d" % row for row in range(60)], [beyond_ms] * 60)
    mesh.world.run(100_000)
    soonest = sorted(mesh.history.messages, key=lambda key: mesh.history.messages[key].due_ms)
    producer.cancel("t", soonest[: inside // 2])
    mesh.world.run(5_000_000)
    assert len(asked) < 50

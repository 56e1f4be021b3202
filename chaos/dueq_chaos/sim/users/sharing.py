"""Users of a fair topic: groups of several levels, and settings of groups that change while messages come."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any, Final

from dueq.client.core.ports import effects
from dueq.client.groups import set_group
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.sdk import SimClient

_CALL_US: Final = 15_000_000
_AGAIN_US: Final = 500_000
_NAMES: Final = ("a", "a.x", "a.y", "a.y.1", "b", "b.x", "c", "d.d.d")
_USUAL: Final[dict[str, Any]] = {"weight": 1, "max_unacked": 0, "paused": False, "rate": 0, "burst": 0}


class Sharing:
    """Draws groups, and sets weights, limits and pauses, from a stream of its own.

    Args:
        mesh: where.
        topics: the fair ones; where there are none nothing is drawn.
    """

    def __init__(self, mesh: SimMesh, topics: list[str]) -> None:
        self._mesh, self._topics = mesh, topics
        self._random = Random(mesh.world.seed * 0x9E3779B1 + 41)
        self._touched: set[tuple[str, str]] = set()
        self._calm = False
        if topics:
            self._client: SimClient = mesh.sdk("sharer")
            self._later()

    def groups_of(self, topic: str, rows: int) -> list[str | None] | None:
        """Return a group for each row; None: the request has none."""
        if topic not in self._topics or self._random.random() < 0.1:
            return None
        return [self._random.choice([None, *_NAMES]) for _ in range(rows)]

    def _later(self) -> None:
        self._mesh.world.after(self._random.randint(50_000, 1_500_000), self._change)

    def _change(self) -> None:
        if self._calm:
            return
        random = self._random
        topic, name = random.choice(self._topics), random.choice(["a", *_NAMES])
        changes: dict[str, Any] = random.choice(
            [{"weight": random.randint(1, 9)}, {"max_unacked": random.choice([0, 1, 2, 5])},
             {"paused": True}, {"paused": False},
             {"rate": random.choice([0, 1, 3]), "burst": random.choice([0, 1, 2])}]
        )  # fmt: skip
        self._touched.add((topic, name))
        answer = partial(self._changed, topic, name)
        self._client.call(set_group(topic, name, changes).build, _CALL_US, answer)
        self._later()

    def _changed(self, topic: str, name: str, value: Any, failed: effects.Failed | None) -> None:
        """A change that was on its way when calm came has perhaps come after all others."""
        if self._calm:
            self._reset(topic, name)

    def calm(self) -> None:
        """From now on every group is as it was created: nothing waits for a slot or for the end of a pause."""
        self._calm = True
        for topic, name in sorted(self._touched):
            self._reset(topic, name)
        self._touched.clear()

    def _reset(self, topic: str, name: str) -> None:
        answer = partial(self._answered, topic, name)
        self._client.call(set_group(topic, name, dict(_USUAL)).build, _CALL_US, answer)

    def _answered(self, topic: str, name: str, value: Any, failed: effects.Failed | None) -> None:
        if failed is not None:
            self._mesh.world.after(_AGAIN_US, lambda: self._reset(topic, name))

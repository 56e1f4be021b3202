"""Users whose messages bear few unique keys and die soon: others take the keys, and then the dead are to come back."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.users.keyed import DUPLICATES, draw_keys
from dueq_chaos.sim.users.mortals import Mortals

if TYPE_CHECKING:
    from dueq_chaos.sim.users.producing import ProducingUser

DIE: Final = "bear keys and die"
RETURN: Final = "redrive bearers"
_KINDS: Final = (DIE, DIE, DIE, RETURN, RETURN)
_FROM: Final = 89_000_000
"""The storms of smaller seeds are as they were before there were such users."""
_SHARE: Final = 0.6
_CALL_US: Final = 15_000_000


def draw(seed: int, until_us: int) -> list[tuple[int, str, int]]:
    """Return when something of this is done, what, and the seed of the rest; from a stream of its own."""
    random = Random(seed * 0x27D4EB2F + 101)
    if seed < _FROM or random.random() >= _SHARE:
        return []
    return [
        (random.randint(0, until_us), random.choice(_KINDS), random.getrandbits(32))
        for _ in range(random.randint(10, 30))
    ]


class Bearers:
    """They schedule, and redrive.

    Args:
        mesh: where.
        producer: the one that schedules.
        mortals: the user that makes consumers deadly, and looks after the dead.
    """

    def __init__(self, mesh: SimMesh, producer: ProducingUser, mortals: Mortals) -> None:
        self._mesh, self._producer, self._mortals = mesh, producer, mortals
        self._count = 0

    def do(self, kind: str, topic: str, random: Random) -> None:
        """Do one thing."""
        if kind == RETURN:
            self._mortals.do("redrive", topic, random)
        elif self._producer.client.core is not None:
            self._mortals.do("deadly habits", topic, random)
            self._schedule(topic, random)

    def _schedule(self, topic: str, random: Random) -> None:
        self._count += 1
        now_ms = self._mesh.world.wall_us // 1000
        payloads = [b"bearer-%d-%d" % (self._count, row) for row in range(random.randint(1, 7))]
        dues = [now_ms + random.randint(-200, 1_000) for _ in payloads]
        self._producer.schedule(
            topic, payloads, dues, _CALL_US,
            more={"max_attempts": [random.choice([1, 1, 2]) for _ in payloads]},
            unique=draw_keys(random, len(payloads)), on_duplicate=random.choice(DUPLICATES),
        )  # fmt: skip

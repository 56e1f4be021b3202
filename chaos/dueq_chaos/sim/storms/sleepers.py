"""Leaders that pause while they hold leases: the messages that they granted go to others meanwhile.

Kept apart from `directed` because only these are about processes that stand still.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.node import READ_LATE_US
from dueq_chaos.sim.storms.workload import Workload
from dueq_chaos.sim.users.habits import Habits

_DENSE_MS = 4
"""Something is due so often: whenever a leader falls asleep, it has granted what it has not pushed."""
_AROUND_MS = (-150, 300)
"""From when to when, counted from falling asleep, things are due."""


class Sleepers:
    """Carries them out.

    Args:
        mesh: in which.
        users: what the users of the storm do.
    """

    def __init__(self, mesh: SimMesh, users: Callable[[], Workload]) -> None:
        self._mesh, self._users, self._later = mesh, users, mesh.unless_calm

    def asleep_on_leases(self, broker: str, random: Random) -> None:
        """A leader sleeps until another leads: with nothing under way that would tell it, or with acks on their way."""
        mesh, users = self._mesh, self._users()
        asleep_ms = random.randint(450, 800)
        if random.random() < 0.6:
            self._at_rest(random, asleep_ms)
        else:
            self._at_work(random, asleep_ms)
        for_us = random.choice([random.randint(1_600_000, 3_200_000), random.randint(3_200_000, 6_500_000)])

        def fall_asleep() -> None:
            node = mesh.nodes[mesh.leader_of(users.traffic.uids[0]) or mesh.names[0]]
            if node.core is not None:
                # It reads what lies in its sockets at once, so before anybody can have answered what it says on waking.
                late_us = (mesh.world.now_us + for_us) % READ_LATE_US
                node.pause(for_us - late_us + random.choice([0, 200, late_us]))

        self._later(asleep_ms * 1000, fall_asleep)

    def _at_rest(self, random: Random, asleep_ms: int) -> None:
        """Messages due soon after were leased along with those due before, and no client asks the sleeper for
        anything.

        So it has nothing to send when it wakes but its pings, which are answered.
        """
        users = self._users()
        for user in users.consumers:
            user.habits = Habits(work_us=(20_000_000, 30_000_000))
        first_ms = self._mesh.world.wall_us // 1000 + asleep_ms - random.randint(60, 85)
        users.traffic.schedule_at(first_ms, 1)
        for after_ms in range(88, 98):
            users.traffic.schedule_at(first_ms + after_ms, 1)

    def _at_work(self, random: Random, asleep_ms: int) -> None:
        """Something is due all the time, and leased, and acknowledged; writes take their time."""
        users = self._users()
        for user in users.consumers:
            user.habits = Habits()
        now_ms = self._mesh.world.wall_us // 1000
        for after_ms in range(asleep_ms + _AROUND_MS[0], asleep_ms + _AROUND_MS[1], _DENSE_MS):
            users.traffic.schedule_at(now_ms + after_ms, 1)
        slow_us = random.choice([0, 8_000, 30_000])

        def slow_down() -> None:
            for node in self._mesh.nodes.values():
                node.disk.slow_us = slow_us

        self._later((asleep_ms - 200) * 1000, slow_down)
        for _ in range(6):
            self._later(random.randint(1_600_000, 6_000_000), lambda: users.traffic.burst(random, 1, 0, 300))

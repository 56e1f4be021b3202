"""Faults that fill a whole storm. Each one leads, as surely as chance allows, to one situation in which only a single
check of the product prevents a loss.

They differ from `plots` in that nothing else goes wrong in their storms, and that options suit them (see `plan`).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from dueq.core.ports.persistence import InstallBegin, InstallEnd
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.storms.workload import Workload
from dueq_chaos.sim.users.habits import Habits

Users = Callable[[], Workload]
"""Makes the users of the storm, with their deeds."""

_DEEP = 600
"""Records: more than a leader sends to one follower without an answer."""


class Directed:
    """Carries them out.

    Args:
        mesh: in which.
        users: its users; for faults that need something of them at a certain moment.
    """

    def __init__(self, mesh: SimMesh, users: Users) -> None:
        self.mesh, self._users, self._later = mesh, users, mesh.unless_calm
        self.kinds: dict[str, Callable[[str, Random], None]] = {
            "late cancels": self._late_cancels,
            "forgetful under a wrong heir": self._forgetful_under_a_wrong_heir,
            "pushes cut off": self._pushes_cut_off,
            "extending in vain": self._extending_in_vain,
            "late pushes": self._late_pushes,
            "stale scans": self._stale_scans,
            "chunks missed": self._chunks_missed,
            "late changes": self._late_changes,
            "wiped and asked": self._wiped_and_asked,
            "deep log": self._deep_log,
        }

    def _leader(self) -> str:
        """The leader of the first partition, or the first broker."""
        return self.mesh.leader_of(next(iter(self.mesh.coordinator.nodes))) or self.mesh.names[0]

    def _bursts(self, random: Random, over_us: int, count: int, soon_ms: int, late_ms: int) -> None:
        """Some traffic, spread over a while."""
        for _ in range(count):
            self._later(
                random.randint(0, over_us), lambda: self._users().traffic.burst(random, 1, soon_ms, late_ms)
            )

    # -------------------------------------------------------------- users and their messages

    def _late_cancels(self, broker: str, random: Random) -> None:
        """Messages are cancelled, or moved, in the last moment before they are due, while disks are slow."""
        users = self._users()
        for node in self.mesh.nodes.values():
            node.disk.slow_us = random.choice([3_000, 15_000])
        for at_ms in range(0, 4_000, 200):
            due_ms = self.mesh.world.wall_us // 1000 + at_ms + 700
            self._later(at_ms * 1000, lambda due_ms=due_ms: users.traffic.schedule_at(due_ms, 3))  # type: ignore[misc]
            self._later(
                (at_ms + 700) * 1000 - random.randint(0, 40_000),
                lambda due_ms=due_ms: users.traffic.alter_due(random, due_ms),  # type: ignore[misc]
            )

    def _forgetful_under_a_wrong_heir(self, broker: str, random: Random) -> None:
        """Consumers let leases run out; meanwhile a broker whose clock is wrong has to take over."""
        mesh, users = self.mesh, self._users()
        leader = self._leader()
        for user in users.consumers:
            user.habits = Habits(forget=1.0)
        self._bursts(random, 300_000, 6, -100, 300)
        crash_us = random.randint(600_000, 1_000_000)

        def go_wrong() -> None:
            if not mesh.clocks_settled():
                return
            heir = random.choice([name for name in mesh.names if name != leader])
            mesh.nodes[heir].wall_error_us = -3_600_000_000

        self._later(crash_us - random.randint(0, 60_000), go_wrong)
        self._later(crash_us, lambda: mesh.nodes[leader].crash(goodbye=True))

    def _pushes_cut_off(self, broker: str, random: Random) -> None:
        """Pushes do not arrive, and break the connection without a word."""
        mesh, users = self.mesh, self._users()
        self._bursts(random, 3_000_000, 10, 300, 600)
        for at_us in range(500_000, 4_500_000, 1_000_000):
            self._later(at_us, lambda: self._silence(random.choice(users.consumers).client.name))
            self._later(at_us + random.randint(50_000, 600_000), mesh.network.heal)

    def _silence(self, client: str) -> None:
        """Nothing that brokers send arrives there."""
        for name in self.mesh.names:
            self.mesh.network.cut(name, client, both=False)

    def _extending_in_vain(self, broker: str, random: Random) -> None:
        """A consumer asks for more time, and is cut off before anybody hears it."""
        mesh, users = self.mesh, self._users()
        for user in users.consumers:
            user.habits = Habits(work_us=(300_000, 1_300_000), extend=0.9)
        self._bursts(random, 500_000, 8, -100, 200)
        victim = random.choice(users.consumers).client.name
        self._later(random.randint(700_000, 1_200_000), lambda: mesh.network.isolate(victim, mesh.names))

    def _late_pushes(self, broker: str, random: Random) -> None:
        """Connections to clients stand still now and then, for longer than leaders wait for a sign of a push."""
        self.mesh.network.weather.held_share = random.choice([0.1, 0.3])
        self._bursts(random, 5_000_000, 20, 0, 600)

    # -------------------------------------------------------------- disks

    def _stale_scans(self, broker: str, random: Random) -> None:
        """Reads show the disk as it was when they were asked for, and take longer than several checkpoints."""
        users = self._users()
        for node in self.mesh.nodes.values():
            node.disk.read_slow_us = random.choice([1_000_000, 3_000_000])
            node.disk.reads_early = True
        for at_us in range(0, 6_000_000, 150_000):
            self._later(at_us, lambda: users.traffic.burst(random, 1, 1_000, 9_000))
            self._later(at_us + 75_000, lambda: users.traffic.move_far(random))

    def _chunks_missed(self, broker: str, random: Random) -> None:
        """Long payloads come in while a follower is away, and wait for their instants when it is back."""
        mesh, users = self.mesh, self._users()
        away = random.choice([name for name in mesh.names if name != self._leader()])
        mesh.network.isolate(away, mesh.names)
        for at_us in (1_800_000, 2_100_000, 2_500_000):
            self._later(at_us, lambda: users.traffic.schedule_long(random, 8_000))
        self._later(random.randint(3_200_000, 4_000_000), mesh.network.heal)
        if random.random() < 0.5:
            self._later(5_500_000, lambda: mesh.nodes[self._leader()].crash(goodbye=True))

    def _wiped_and_asked(self, broker: str, random: Random) -> None:
        """Two members are counted on. One is damaged, and dies when it was wiped or filled; then the other goes.

        Two brokers are then alone: the one that comes back with nothing, or with less than it had acked, and the one
        that was away all the time.
        """
        mesh, leader = self.mesh, self._leader()
        if not mesh.may_lose(leader):
            return
        away, damaged = random.sample([name for name in mesh.names if name != leader], 2)
        node = mesh.nodes[damaged]
        mesh.network.isolate(away, mesh.names)
        self._bursts(random, 2_000_000, 12, -100, 3_000)

        def damage() -> None:
            node.crash()
            for uid in mesh.coordinator.nodes:
                node.disk.damage(uid, random)
            node.disk.kill_after = random.choice((InstallBegin, InstallEnd))
            node.start()
            leader_goes()

        def leader_goes() -> None:
            if node.core is not None:
                self._later(200, leader_goes)
                return
            mesh.nodes[leader].crash(goodbye=True)
            mesh.network.heal()
            self._later(random.randint(10_000, 500_000), node.start)

        self._later(random.randint(2_200_000, 2_800_000), damage)

    # -------------------------------------------------------------- the coordinator

    def _late_changes(self, broker: str, random: Random) -> None:
        """A follower comes back and vanishes again; the change that counts it in has got lost, and comes much later."""
        mesh = self.mesh
        away = random.choice([name for name in mesh.names if name != self._leader()])
        mesh.network.isolate(away, mesh.names)
        self._bursts(random, 6_000_000, 30, -200, 2_000)

        def come_back() -> None:
            mesh.coordinator.lose_answer_share = 1.0
            mesh.coordinator.late_us = (1_000_000, 2_500_000)
            mesh.network.heal()

        back_us = random.randint(2_000_000, 2_600_000)
        self._later(back_us, come_back)
        self._later(back_us + random.randint(20_000, 300_000), lambda: mesh.network.isolate(away, mesh.names))

    # -------------------------------------------------------------- followers

    def _deep_log(self, broker: str, random: Random) -> None:
        """A follower of a long log begins a new life and hears nothing for long, while the log goes on without it."""
        mesh, users, leader = self.mesh, self._users(), self._leader()
        core = mesh.nodes[leader].core
        partition = core.partition(next(iter(mesh.coordinator.nodes))) if core is not None else None
        deep = partition is not None and partition.replica.log.end > _DEEP
        began_ms = mesh.world.wall_us // 1000
        for at_ms in range(0, 3_500, 100 if deep else 5):
            due_ms = began_ms + at_ms + random.randint(-200, 500)
            self._later(at_ms * 1000, lambda due_ms=due_ms: users.traffic.schedule_at(due_ms, 1))  # type: ignore[misc]
        away = random.choice([name for name in mesh.names if name != leader])
        self._later(3_500_000, lambda: mesh.network.isolate(away, mesh.names))
        self._later(3_600_000, mesh.nodes[away].crash)
        self._later(3_700_000, mesh.nodes[away].start)
        for at_us in range(3_700_000, 5_200_000, 100_000):
            self._later(at_us, lambda: users.traffic.burst(random, 1, -200, 500))
        self._later(random.randint(5_300_000, 6_000_000), mesh.network.heal)

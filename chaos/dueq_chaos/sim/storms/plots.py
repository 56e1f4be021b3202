"""Misfortunes that belong together: several faults and some traffic, so close in time as chance seldom brings them.

Each is a situation in which public systems have lost data. Its result is judged like everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from dueq.core.ports.persistence import InstallRows
from dueq_chaos.sim.environment.mesh import SimMesh

Burst = Callable[[Random, int, int, int], None]
"""(random, requests, soonest due, latest due): the latter in ms from now."""
_EARLY_US = 30_000
"""How long before the instant that it waits for a leader may fall asleep."""


class Plots:
    """Carries them out.

    Args:
        mesh: in which.
        burst: has the producing user schedule a few things.
    """

    def __init__(self, mesh: SimMesh, burst: Burst) -> None:
        self.mesh, self._burst, self._later = mesh, burst, mesh.unless_calm

    def _leader(self, random: Random) -> str:
        """The leader of one of the partitions, or anybody."""
        leaders = [self.mesh.leader_of(uid) for uid in self.mesh.coordinator.nodes]
        return random.choice([name for name in leaders if name is not None] or self.mesh.names)

    # -------------------------------------------------------------- leaders

    def overthrow(self, broker: str, random: Random) -> None:
        """Leader after leader is cut off while requests come in, and comes back with records that no other replica
        has.
        """
        rounds = random.randint(1, 4)
        keeps_one = random.random() < 0.4
        at_us = 0
        for _ in range(rounds):
            back_us = random.randint(1_700_000, 3_200_000)
            self._later(at_us, lambda: self._cut_leader_off(random, keeps_one=keeps_one))
            at_us += back_us
            self._later(at_us, self.mesh.network.heal)
            at_us += random.choice([1_000, 30_000, 400_000, 1_500_000])

    def _cut_leader_off(self, random: Random, *, keeps_one: bool) -> None:
        """Clients still reach it, and at times one follower, whose answers get lost."""
        leader = self._leader(random)
        others = [name for name in self.mesh.names if name != leader]
        kept = random.choice(others) if keeps_one and others else ""
        for other in others:
            if other == kept:
                self.mesh.network.cut(other, leader, both=False)
            else:
                self.mesh.network.cut(leader, other)
        for _ in range(random.randint(1, 6)):
            self._later(random.randint(0, 900_000), lambda: self._burst(random, 1, -200, 3_000))

    def wrong_heir(self, broker: str, random: Random) -> None:
        """A broker's clock is wrong from its first moment on, and it has to take over before it was measured."""
        mesh = self.mesh
        leader = self._leader(random)
        heirs = [name for name in mesh.names if name != leader]
        if not heirs:
            return
        error_us = random.choice([-3_600_000_000, -3_600_000_000, -30_000_000, 3_600_000_000])
        mesh.clocks_settled()
        heir = random.choice(heirs)
        self._burst(random, 3, 0, 400)
        crash_us = random.randint(100_000, 900_000)

        def go_wrong() -> None:
            if not mesh.clocks_settled():
                return  # another such plot is under way: two wrong clocks are a majority
            mesh.nodes[heir].wall_error_us = error_us
            if random.random() < 0.5:
                # Nobody measures it: it hears of the leader's end, and of hardly anything else.
                mesh.network.weather.lost_share = 0.5

        self._later(max(crash_us - random.randint(0, 60_000), 0), go_wrong)
        self._later(crash_us, lambda: mesh.nodes[leader].crash(goodbye=True))

    # -------------------------------------------------------------- pauses

    def doze(self, broker: str, random: Random) -> None:
        """A leader falls asleep just before its leased messages are due; when it wakes, another one may lead."""
        mesh = self.mesh
        leader = self._leader(random)
        soon_ms = random.randint(150, 400)
        self._burst(random, random.randint(1, 4), soon_ms, soon_ms + 30)
        asleep_us = random.choice([random.randint(300_000, 1_200_000), random.randint(2_000_000, 7_000_000)])
        alone = random.random() < 0.5

        def fall_asleep() -> None:
            node = mesh.nodes[leader]
            if node.core is None:
                return
            node.pause(asleep_us)
            if alone:
                mesh.network.isolate(leader, mesh.names)
                self._later(asleep_us + random.randint(100_000, 1_500_000), mesh.network.heal)

        self._later(soon_ms * 1000 - random.randint(0, _EARLY_US), fall_asleep)

    def naps(self, broker: str, random: Random) -> None:
        """Short pauses, one after the other, while consumers work under their leases and acknowledge."""
        at_us = 0
        for _ in range(random.randint(4, 9)):
            self._later(at_us, lambda: self._burst(random, 2, -100, 300))
            at_us += random.randint(100_000, 600_000)
            nap_us = random.randint(350_000, 1_300_000)
            self._later(at_us, lambda nap_us=nap_us: self._nap(random, nap_us))  # type: ignore[misc]
            at_us += nap_us

    def _nap(self, random: Random, nap_us: int) -> None:
        node = self.mesh.nodes[self._leader(random)]
        if node.core is not None:
            node.pause(nap_us)

    # -------------------------------------------------------------- disks and what fills them

    def damaged_disk(self, broker: str, random: Random) -> None:
        """A record in the middle of a log is lost or damaged while the broker is down; two others have everything."""
        mesh = self.mesh
        node = mesh.nodes[broker]
        if not mesh.may_lose(broker):
            return
        node.crash()
        for uid in mesh.coordinator.nodes:
            if random.random() < 0.7:
                node.disk.damage(uid, random)
        node.start()

    def left_behind(self, broker: str, random: Random) -> None:
        """A follower is away until the log has gone on without it, and dies again while it is filled."""
        mesh = self.mesh
        node = mesh.nodes[broker]
        node.crash()
        for step in range(8):
            self._later(step * 150_000, lambda: self._burst(random, 1, -200, 2_000))
        back_us = random.randint(4_000_000, 5_000_000)

        def come_back() -> None:
            node.disk.kill_after = InstallRows
            if node.core is None:
                node.start()

        def once_more() -> None:
            node.disk.kill_after = None
            if node.core is None:
                node.start()

        self._later(back_us, come_back)
        self._later(back_us + random.randint(300_000, 3_000_000), once_more)

    def slow_reads(self, broker: str, random: Random) -> None:
        """Reading takes longer than writing."""
        for node in self.mesh.nodes.values():
            node.disk.read_slow_us = random.choice([20_000, 300_000])

    # -------------------------------------------------------------- frames and answers that come late or wrong

    def late_frames(self, broker: str, random: Random) -> None:
        """Some frames between brokers come seconds after their successors, or once more then."""
        self.mesh.network.weather.late_share = random.choice([0.02, 0.1, 0.3])

    def damaged_bodies(self, broker: str, random: Random) -> None:
        """Bits turn on the way to clients."""
        self.mesh.network.weather.damaged_share = random.choice([0.05, 0.3])

    def slow_coordinator(self, broker: str, random: Random) -> None:
        """Its answers take long and get lost, while followers come and go."""
        mesh = self.mesh
        mesh.coordinator.slow_us = random.choice([100_000, 600_000])
        mesh.coordinator.lose_answer_share = random.choice([0.3, 0.7])
        at_us = 0
        for _ in range(random.randint(1, 4)):
            other = random.choice(mesh.names)
            self._later(at_us, lambda other=other: mesh.network.isolate(other, mesh.names))  # type: ignore[misc]
            for _ in range(4):
                self._later(at_us + random.randint(0, 3_000_000), lambda: self._burst(random, 1, -200, 2_000))
            at_us += random.randint(1_600_000, 2_500_000)
            self._later(at_us, mesh.network.heal)
            at_us += random.randint(50_000, 1_000_000)

"""More faults that fill a whole storm (see `directed`), for situations that ordinary storms hardly ever reach.

Each comes from a count of what batches of storms never took (see `coverage`).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from dueq.core.ports.events import StorePressure
from dueq_chaos.sim.storms.successions import Successions
from dueq_chaos.sim.users.habits import Habits


class Seldom(Successions):
    """Carries them out."""

    @property
    def kinds(self) -> dict[str, Callable[[str, Random], None]]:
        """By name."""
        return {
            "cut while syncing": self.cut_while_syncing,
            "refused in the end": self.refused_in_the_end,
            "acked at the end": self.acked_at_the_end,
            "jobs at their instant": self.jobs_at_their_instant,
            "filled across leaders": self.filled_across_leaders,
            "acks of long ago": self.acks_of_long_ago,
        }

    def cut_while_syncing(self, broker: str, random: Random) -> None:
        """A follower has records that its next leader lacks, and is still writing them when they are cut.

        The leader reaches that one only, whose disk is slow, and is gone; the third one takes over, as nobody who
        answers has more. The slow one then has to cut, and to take other records in the same places.
        """
        mesh, network = self.mesh, self.mesh.network
        _, leader, others = self._led(random)
        slow, heir = random.sample(others, 2)
        slow_us = random.choice([700_000, 1_500_000, 3_000_000])
        at_once = random.random() < 0.6  # else it is slow only when what is cut has been written
        self._bursts(random, 10, 0, 1_000_000)

        def run_ahead() -> None:
            network.cut(leader, heir, both=False)
            mesh.nodes[slow].disk.slow_us = slow_us if at_once else 0
            for at_us in range(0, 500_000, 25_000):
                self._later(at_us, lambda: self._burst(random, 1, -200, 1_000))

        def go() -> None:
            network.isolate(slow, mesh.names)
            mesh.nodes[slow].disk.slow_us = slow_us
            mesh.nodes[leader].crash(goodbye=True)

        self._later(1_200_000, run_ahead)
        self._later(1_200_000 + random.randint(200_000, 600_000), go)
        back_us = 2_400_000 + random.randint(0, 800_000)
        self._later(back_us, network.heal)
        for at_us in range(back_us, back_us + 2_500_000, 60_000):
            self._later(at_us, lambda: self._burst(random, 1, -200, 1_000))

    def refused_in_the_end(self, broker: str, random: Random) -> None:
        """Requests that were taken are not answered: their leader is gone, or their connection. Until their callers'
        time is over, everybody else refuses them."""
        mesh = self.mesh
        _, leader, others = self._led(random)
        at_us = random.randint(800_000, 1_500_000)
        for early_us in range(0, 60_000, 4_000):
            self._later(at_us - early_us, lambda: self._do("impatient schedule", random))
        self._bursts(random, 4, 0, 800_000)
        for other in others:
            mesh.nodes[other].disk.slow_us = random.choice([0, 5_000, 30_000])

        def refuse() -> None:
            for node in mesh.nodes.values():
                node.squeeze(StorePressure(random.choice(["busy", "disk_full"]), hand_over=False))

        end = random.choice(["crash", "restart", "cut off"])

        def go() -> None:
            refuse()
            if end == "cut off":
                mesh.network.isolate(leader, [*mesh.names, "producer"])
                return
            mesh.nodes[leader].crash(goodbye=end == "restart")
            if end == "restart":
                self._later(random.randint(1_000, 300_000), mesh.nodes[leader].start)

        self._later(at_us, go)
        self._later(at_us + random.randint(1_500_000, 3_000_000), mesh.network.heal)

    def acked_at_the_end(self, broker: str, random: Random) -> None:
        """Patient acks come at the very end of their leases, while disks are a little slow."""
        users = self._users()
        for node in self.mesh.nodes.values():
            node.disk.slow_us = random.choice([0, 3_000, 20_000])
        for user in users.consumers:
            lease_us = user.lease_ms * 1000
            user.habits = Habits(work_us=(lease_us - 130_000, lease_us - 2_000), patient=1.0)
        for at_us in range(0, 4_000_000, 40_000):
            self._later(at_us, lambda: self._burst(random, 1, -200, 500))

    def jobs_at_their_instant(self, broker: str, random: Random) -> None:
        """Jobs are committed and cancelled while their messages fall due, and leaders go in between."""
        for _ in range(random.randint(6, 12)):
            self._later(random.randint(0, 4_000_000), lambda: self._do("load job", random))
        for node in self.mesh.nodes.values():
            node.disk.slow_us = random.choice([0, 20_000, 150_000])
        if random.random() < 0.5:
            self._later(
                random.randint(1_000_000, 4_000_000),
                lambda: self.mesh.nodes[self._leader(random)].crash(goodbye=True),
            )

    def filled_across_leaders(self, broker: str, random: Random) -> None:
        """A follower is filled part by part, for seconds, while leader after leader goes and long payloads come in."""
        mesh = self.mesh
        _, _, others = self._led(random)
        late = random.choice(others)
        mesh.nodes[late].crash()
        self._bursts(random, 25, 0, 3_500_000)
        at_us = random.randint(3_800_000, 4_500_000)

        def come_back() -> None:
            mesh.nodes[late].disk.slow_us = random.choice([30_000, 120_000, 400_000])
            if mesh.nodes[late].core is None:
                mesh.nodes[late].start()

        def change_leader() -> None:
            node = mesh.nodes[self._leader(random)]
            if node.name != late and node.core is not None:
                node.crash(goodbye=True)
                self._later(
                    random.randint(50_000, 400_000), lambda: node.start() if node.core is None else None
                )

        self._later(at_us, come_back)
        for _ in range(3):
            at_us += random.randint(200_000, 1_500_000)
            self._later(at_us, change_leader)
            self._later(at_us - random.randint(0, 200_000), lambda: self._do("schedule long", random))

    def acks_of_long_ago(self, broker: str, random: Random) -> None:
        """An ack for records that a follower has had to cut since reaches its leader when that one leads again."""
        mesh, network = self.mesh, self.mesh.network
        uid, leader, others = self._led(random)
        follower, heir = random.sample(others, 2)
        self._bursts(random, 8, 0, 1_000_000)

        def run_ahead() -> None:
            network.cut(leader, heir, both=False)
            network.hold(follower, leader)
            for at_us in range(0, 250_000, 10_000):
                self._later(at_us, lambda: self._burst(random, 1, -200, 1_000))

        def part() -> None:
            network.cut(leader, heir)
            network.cut(leader, follower)
            network.cut(follower, heir)
            mesh.coordinator.cut_off(leader, 0)
            self._when(lambda: self._leads(heir, uid), meet)

        def meet() -> None:
            network.join(follower, heir)
            self._later(700_000, come_back)

        def come_back() -> None:
            network.join(leader, heir)
            network.join(leader, follower)
            mesh.coordinator.reconnect(leader)
            self._when(lambda: leader in self._isr(uid) and not self._leads(leader, uid), replace)

        def replace() -> None:
            mesh.nodes[heir].crash(goodbye=True)
            self._when(lambda: self._leads(leader, uid), network.release)

        self._later(1_200_000, run_ahead)
        self._later(1_500_000, part)

    def _leads(self, broker: str, uid: int) -> bool:
        replica = self._replica(broker, uid)
        return replica is not None and replica.leading is not None

"""The harm that a storm does to brokers, disks, networks, clocks and the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from dueq.core.ports.events import StorePressure
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.storms.directed import Directed, Users
from dueq_chaos.sim.storms.losses import Losses
from dueq_chaos.sim.storms.mishaps import Mishaps
from dueq_chaos.sim.storms.plan import Step
from dueq_chaos.sim.storms.plots import Burst, Plots
from dueq_chaos.sim.storms.seldom import Seldom
from dueq_chaos.sim.storms.sleepers import Sleepers
from dueq_chaos.sim.storms.successions import Successions
from dueq_chaos.sim.storms.upgrades import Upgrades

_HARMLESS_TO_FRAMES = ("pause", "naps", "set clock", "drift clock")
"""Faults that hold up no frames: a broker that was asleep finds them when it wakes."""


class Faults:
    """Does what a step of a plan says.

    Attributes:
        injected: how many, by kind.
    """

    def __init__(self, mesh: SimMesh, burst: Burst, users: Users) -> None:
        self.mesh = mesh
        plots, successions = Plots(mesh, burst), Successions(mesh, burst, users)
        seldom = Seldom(mesh, burst, users)
        directed, losses = Directed(mesh, users), Losses(mesh, burst)
        sleepers = Sleepers(mesh, users)
        self.injected: dict[str, int] = {}
        self._kinds: dict[str, Callable[[str, Random], None]] = {
            "crash": self._crash,
            "restart": self._restart,
            "crash two": self._crash_two,
            "crash at write": self._crash_at_write,
            "isolate": lambda broker, random: mesh.network.isolate(broker, mesh.names),
            "isolate from all": lambda broker, random: mesh.network.isolate(broker, self._ends()),
            "cut one way": self._cut_one_way,
            "cut client": self._cut_client,
            "pause": self._pause,
            "cut from coordinator": self._cut_from_coordinator,
            "coordinator away": self._coordinator_away,
            "slow disk": self._slow_disk,
            "failing disk": lambda broker, random: mesh.nodes[broker].disk.fail(),
            "full disk": self._full_disk,
            "lose disk": self._lose_disk,
            "set clock": self._set_clock,
            "drift clock": self._drift_clock,
            "bad network": self._bad_network,
            "overthrow": plots.overthrow,
            "wrong heir": plots.wrong_heir,
            "doze": plots.doze,
            "naps": plots.naps,
            "damaged disk": plots.damaged_disk,
            "left behind": plots.left_behind,
            "slow reads": plots.slow_reads,
            "late frames": plots.late_frames,
            "damaged bodies": plots.damaged_bodies,
            "slow coordinator": plots.slow_coordinator,
            "old frames": successions.old_frames,
            "echoes": successions.echoes,
            "alone": successions.alone,
            "halfway": successions.halfway,
            "joins unseen": successions.joins_unseen,
            "first words": successions.first_words,
            "leads again": successions.leads_again,
            **losses.kinds,
            "asleep on leases": sleepers.asleep_on_leases,
            **seldom.kinds,
            **Upgrades(mesh, burst).kinds,
            **directed.kinds,
            **Mishaps(mesh, burst).kinds,
        }

    def do(self, step: Step) -> None:
        """Inject it."""
        random = Random(step.seed)
        broker = random.choice(self.mesh.names)
        self.mesh.world.tell("fault", f"{step.kind}: {broker}")
        self.injected[step.kind] = self.injected.get(step.kind, 0) + 1
        if step.kind not in _HARMLESS_TO_FRAMES:
            self.mesh.harm()
        self._kinds[step.kind](broker, random)

    def _ends(self) -> list[str]:
        return [*self.mesh.names, *self.mesh.clients, *self.mesh.sdks]

    # -------------------------------------------------------------- processes

    def _crash(self, broker: str, random: Random) -> None:
        """Down until calm comes, or for a while."""
        self.mesh.nodes[broker].crash()
        if random.random() < 0.5:
            self._start_later(broker, random.randint(1_000, 6_000_000))

    def _restart(self, broker: str, random: Random) -> None:
        """Stopped as an operator does it, and started again at once."""
        self.mesh.nodes[broker].crash(goodbye=random.random() < 0.7)
        self._start_later(broker, random.randint(1_000, 500_000))

    def _start_later(self, broker: str, after_us: int) -> None:
        node = self.mesh.nodes[broker]

        def start() -> None:
            if node.core is None:
                node.start()

        self.mesh.world.after(after_us, start)

    def _crash_two(self, broker: str, random: Random) -> None:
        for name in random.sample(self.mesh.names, min(2, len(self.mesh.names))):
            self._crash(name, random)

    def _crash_at_write(self, broker: str, random: Random) -> None:
        """At one of its next writes, before or after it has reached the disk."""
        fuse = self.mesh.nodes[broker].disk.fuse
        fuse.left, fuse.torn = random.randint(1, 12), random.random() < 0.5
        self._start_later(broker, random.randint(500_000, 6_000_000))

    def _pause(self, broker: str, random: Random) -> None:
        """Longer than the coordinator's patience at times: then it is expired before it knows."""
        if self.mesh.nodes[broker].core is not None:
            for_us = random.choice(
                [random.randint(100_000, 2_000_000), random.randint(2_000_000, 10_000_000)]
            )
            self.mesh.nodes[broker].pause(for_us)

    # -------------------------------------------------------------- the network

    def _cut_one_way(self, broker: str, random: Random) -> None:
        others = [name for name in self.mesh.names if name != broker]
        if others:
            self.mesh.network.cut(broker, random.choice(others), both=False)

    def _cut_client(self, broker: str, random: Random) -> None:
        clients = [*self.mesh.clients, *self.mesh.sdks]
        if clients:
            self.mesh.network.cut(broker, random.choice(clients), both=random.random() < 0.5)

    def _bad_network(self, broker: str, random: Random) -> None:
        weather = self.mesh.network.weather
        weather.lost_share = random.choice([0.05, 0.3])
        weather.slow_share = random.choice([0.05, 0.4])
        weather.twice_share = random.choice([0, 0.2])

    # -------------------------------------------------------------- the coordinator

    def _cut_from_coordinator(self, broker: str, random: Random) -> None:
        self.mesh.coordinator.cut_off(broker, random.choice([0, random.randint(0, 4_000_000)]))
        if random.random() < 0.5:
            self.mesh.world.after(
                random.randint(100_000, 8_000_000), lambda: self.mesh.coordinator.reconnect(broker)
            )

    def _coordinator_away(self, broker: str, random: Random) -> None:
        for name in self.mesh.names:
            self.mesh.coordinator.cut_off(name, random.randint(0, 2_000_000))

    # -------------------------------------------------------------- disks

    def _slow_disk(self, broker: str, random: Random) -> None:
        self.mesh.nodes[broker].disk.slow_us = random.randint(1_000, 800_000)

    def _full_disk(self, broker: str, random: Random) -> None:
        reason = random.choice(["disk_full", "disk_full", "busy"])
        hand_over = reason == "disk_full" and random.random() < 0.4
        self.mesh.nodes[broker].squeeze(StorePressure(reason, hand_over))

    def _lose_disk(self, broker: str, random: Random) -> None:
        """Only where two others hold everything: more would be a loss by design."""
        if self.mesh.may_lose(broker):
            node = self.mesh.nodes[broker]
            node.crash()
            node.disk.lose()
            node.start()

    # -------------------------------------------------------------- clocks

    def _set_clock(self, broker: str, random: Random) -> None:
        """One wall clock is set, by a little or by an hour; the majority stays right.

        If another clock is wrong, or was until now, it is set right and nothing else is done: two that leap before
        both have been measured again are a majority that leaps.
        """
        if len(self.mesh.names) == 1 or not self.mesh.clocks_settled():
            return
        error_us = random.choice([20_000, 200_000, 3_000_000, 3_600_000_000])
        self.mesh.nodes[broker].wall_error_us = random.choice([-1, 1]) * error_us

    def _drift_clock(self, broker: str, random: Random) -> None:
        if len(self.mesh.names) == 1 or not self.mesh.clocks_settled():
            return
        self.mesh.nodes[broker].drift(random.choice([-1, 1]) * random.choice([50, 500]))

"""Misfortunes around a change of leader: the old one's frames, promises and assumptions meet its successor.

A directed storm (see `plan.DIRECTED`) is given to one of them. They look into brokers to strike at the right instant,
as an adversary would. The result is judged from outside, like everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from dueq.core.replication.replica import Replica
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.storms.directed import Users
from dueq_chaos.sim.storms.plan import Step
from dueq_chaos.sim.storms.plots import Burst, Plots

_LOOK_US = 50
"""Time between two looks of a plot at its instant: less than a frame takes."""
_WITHIN_US = 4_000_000
"""Longest wait for it."""


class Successions(Plots):
    """Carries them out.

    Args:
        mesh: in which.
        burst: has the producing user schedule a few things.
        users: its users; for those who want something else of them.
    """

    def __init__(self, mesh: SimMesh, burst: Burst, users: Users) -> None:
        super().__init__(mesh, burst)
        self._users = users

    def _when(self, come: Callable[[], bool], then: Callable[[], None]) -> None:
        """Go on as soon as an instant has come, unless it does not come for long."""
        world = self.mesh.world
        until_us = world.now_us + _WITHIN_US

        def look() -> None:
            if come():
                then()
            elif world.now_us < until_us:
                world.after(_LOOK_US, look_again)

        look_again = self.mesh.until_calm(look)
        look()

    def _replica(self, broker: str, uid: int) -> Replica | None:
        core = self.mesh.nodes[broker].core
        partition = core.partition(uid) if core is not None else None
        return partition.replica if partition is not None else None

    def _led(self, random: Random) -> tuple[int, str, list[str]]:
        """A partition that is led by the first of its replicas if there is one, its leader, and the others."""
        mesh = self.mesh
        leaders = [(uid, mesh.leader_of(uid) or "") for uid in mesh.coordinator.nodes]
        found = [(uid, name) for uid, name in leaders if name] or [(leaders[0][0], random.choice(mesh.names))]
        first = [
            pair
            for pair in found
            if (replica := self._replica(pair[1], pair[0])) and replica.replicas[0] == pair[1]
        ]
        uid, leader = random.choice(first or found)
        return uid, leader, [name for name in mesh.names if name != leader]

    def _isr(self, uid: int) -> list[str]:
        """The brokers of the ISR as the coordinator has it."""
        found = self.mesh.coordinator.nodes.get(uid)
        return [member.broker_id for member in found[1].isr] if found is not None else []

    def _do(self, kind: str, random: Random) -> None:
        """Have the users do one thing of a kind of `plan.TRAFFIC`."""
        self._users().do(Step(0, kind, random.getrandbits(32)))

    def _bursts(self, random: Random, requests: int, from_us: int, to_us: int, late_ms: int = 2_000) -> None:
        for _ in range(requests):
            self._later(random.randint(from_us, to_us), lambda: self._burst(random, 1, -200, late_ms))

    # -------------------------------------------------------------- frames of the old one

    def old_frames(self, broker: str, random: Random) -> None:
        """A leader's frames are held up until another broker leads and has gone further, and arrive then."""
        network = self.mesh.network
        _, leader, others = self._led(random)
        for other in others:
            network.cut(other, leader, both=False)
            network.hold(leader, other)
        self._bursts(random, random.randint(4, 12), 0, 900_000)
        self._bursts(random, random.randint(4, 12), 2_000_000, 4_000_000)
        arrive_us = random.randint(2_600_000, 4_000_000)
        self._later(arrive_us, network.release)
        self._later(arrive_us + random.choice([5_000, 400_000, 1_500_000]), network.heal)
        self._bursts(random, 3, arrive_us, arrive_us + 1_000_000)

    def echoes(self, broker: str, random: Random) -> None:
        """A follower is filled anew, and all that was said in doing so arrives once more when it has long been done."""
        mesh = self.mesh
        _, leader, others = self._led(random)
        late = mesh.nodes[random.choice(others)]
        late.crash(goodbye=True)
        self._bursts(random, 12, 0, 2_500_000)
        back_us = random.randint(4_200_000, 4_800_000)

        def come_back() -> None:
            for source, target in ((leader, late.name), (late.name, leader)):
                if random.random() < 0.7:
                    mesh.network.echo(source, target, random.choice([300_000, 900_000, 2_000_000]))
            if late.core is None:
                late.start()

        self._later(back_us, come_back)
        self._bursts(random, 6, back_us, back_us + 2_000_000)

    # -------------------------------------------------------------- who is counted on

    def alone(self, broker: str, random: Random) -> None:
        """Both followers die, one soon after the other, while requests come in."""
        mesh = self.mesh
        _, _, others = self._led(random)
        random.shuffle(others)
        down_us = 0
        for other in others:
            node = mesh.nodes[other]
            goodbye = random.random() < 0.5
            self._later(down_us, lambda node=node, goodbye=goodbye: node.crash(goodbye=goodbye))  # type: ignore[misc]
            down_us += random.choice([0, 200_000, 2_000_000])
        self._bursts(random, 12, 0, 5_000_000)
        back_us = random.randint(4_000_000, 5_500_000)
        for other in others:
            self._later(back_us, lambda node=mesh.nodes[other]: node.start() if node.core is None else None)  # type: ignore[misc]
            back_us += random.choice([0, 300_000])

    def halfway(self, broker: str, random: Random) -> None:
        """A leader dies when its heir does not know yet what is committed; a replica comes back that lacks it.

        It lacks long payloads, too, so that what it lacks comes to it in parts, and to a slow disk.
        """
        mesh, network = self.mesh, self.mesh.network
        uid, leader, others = self._led(random)
        random.shuffle(others)
        late, heir = others
        network.isolate(late, mesh.names)

        def knows_less() -> bool:
            own, other = self._replica(leader, uid), self._replica(heir, uid)
            if own is None or other is None or late in self._isr(uid):
                return False
            fresh = [other.log.get(sequence) for sequence in range(other.commit + 1, other.log.end + 1)]
            return any(entry is not None and len(entry.record.upload) for entry in fresh)

        def keep_from_knowing() -> None:
            network.cut(leader, heir, both=False)
            own, other = self._replica(leader, uid), self._replica(heir, uid)
            if own is not None and other is not None:
                end = other.log.end
                self._when(lambda: own.commit >= end, end_it)

        def end_it() -> None:
            mesh.nodes[leader].crash(goodbye=True)
            mesh.nodes[late].disk.slow_us = random.choice([20_000, 200_000, 500_000])
            network.heal()

        for _ in range(6):
            self._later(random.randint(1_600_000, 3_500_000), lambda: self._do("schedule long", random))
        self._later(1_600_000, lambda: self._when(knows_less, keep_from_knowing))

    def joins_unseen(self, broker: str, random: Random) -> None:
        """A follower joins by a change whose outcome its leader does not learn, and is cut off before it happens."""
        mesh, network, coordinator = self.mesh, self.mesh.network, self.mesh.coordinator
        uid, leader, others = self._led(random)
        late = random.choice(others)
        network.isolate(late, mesh.names)

        def come_back() -> None:
            coordinator.lose_answer_share = 1.0
            coordinator.slow_us = random.choice([0, 100_000, 400_000])
            network.heal()
            self._when(joining, cut_off)

        def joining() -> bool:
            replica = self._replica(leader, uid)
            if replica is None or replica.leading is None:
                return False
            counted = [member.broker_id for member in replica.waited_on()]
            return late in counted and late not in self._isr(uid)

        def cut_off() -> None:
            network.isolate(late, mesh.names)
            self._bursts(random, 12, 0, 1_500_000)
            self._later(2_500_000, network.heal)

        self._later(1_800_000, lambda: self._when(lambda: late not in self._isr(uid), come_back))

    # -------------------------------------------------------------- who leads again

    def first_words(self, broker: str, random: Random) -> None:
        """A leader restarts with more than the others have; everything after its first frames to them is lost."""
        mesh, network = self.mesh, self.mesh.network
        uid, leader, others = self._led(random)
        self._bursts(random, 10, 0, 2_000_000)

        def run_ahead() -> None:
            for other in others:
                network.cut(leader, other, both=False)
            self._bursts(random, 6, 0, 300_000)

        def start_anew() -> None:
            mesh.nodes[leader].crash(goodbye=True)
            network.heal()
            mesh.nodes[leader].start()
            for other in others:
                self._when(lambda other=other: heard(other), lambda other=other: lose(other))  # type: ignore[misc]

        def heard(other: str) -> bool:
            own, follower = self._replica(leader, uid), self._replica(other, uid)
            return (
                own is not None and own.leading is not None and follower is not None
                and follower.epoch == own.leading.epoch
            )  # fmt: skip

        def lose(other: str) -> None:
            network.cut(leader, other, both=False)

        self._later(3_000_000, run_ahead)
        self._later(3_600_000, start_anew)
        self._later(3_600_000 + random.randint(1_000_000, 1_500_000), network.heal)

    def leads_again(self, broker: str, random: Random) -> None:
        """A leader is replaced while many wait for it, comes back as a follower, and leads again at once.

        A client that waits reaches no other broker, so it still waits then. Another client's record is where its own
        would have been.
        """
        mesh, network = self.mesh, self.mesh.network
        uid, leader, others = self._led(random)
        for other in others:
            network.cut(leader, other)
            network.cut(other, "producer")
        for at_us in range(0, 1_200_000, 20_000):
            self._later(at_us, lambda: self._burst(random, 1, -200, 2_000))
        ends: list[int] = []

        def note_end() -> None:
            replica = self._replica(leader, uid)
            ends.append(replica.log.end if replica is not None else 0)

        def come_back() -> None:
            for other in others:
                network.join(leader, other)
            self._when(follows, replace)

        def follows() -> bool:
            replica = self._replica(leader, uid)
            if replica is None or leader not in self._isr(uid) or replica.leading is not None:
                return False
            last = replica.log.get(replica.log.end)
            unapplied = replica.commit < replica.log.end <= ends[0]
            return unapplied and last is not None and bool(last.record.requests)

        def replace() -> None:
            replica = self._replica(leader, uid)
            heir = replica.leader if replica is not None else ""
            if heir in others:
                mesh.nodes[heir].crash(goodbye=True)

        self._later(1_400_000, note_end)
        self._later(random.randint(2_000_000, 2_400_000), come_back)

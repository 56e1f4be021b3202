"""Mishaps of operators: an older build among newer ones, and brokers that start with a wrong clock.

They come to meshes of any topology, in storms in which nothing else goes wrong: then it is certain who has to lead.
"""

from __future__ import annotations

from random import Random

from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.storms.plan import MISHAPS
from dueq_chaos.sim.storms.plots import Burst
from dueq_codecs.records import RecordKind

_UNKNOWN = (RecordKind.INSERT, RecordKind.INSERT, RecordKind.LEASE, RecordKind.ACK, RecordKind.MOVE)
_EXTRA = "replaced"
_HOUR_MS = 3_600_000
_AHEAD_US = 7_200_000_000
_ELECTED_US = 8_000_000
"""Within this a leader is found, where the news of the coordinator take three seconds."""


class Mishaps:
    """Carries them out."""

    def __init__(self, mesh: SimMesh, burst: Burst) -> None:
        self.mesh, self._burst, self._later = mesh, burst, mesh.unless_calm
        self.kinds = {
            "older build": self._older_build,
            "slow upgrade": self._slow_upgrade,
            "wrong start": self._wrong_start,
            "returned disk": self._returned_disk,
        }

    # -------------------------------------------------------------- builds

    def _older_build(self, broker: str, random: Random) -> None:
        """One broker's build is older, and meets records that it does not know; then a leader may die."""
        mesh = self.mesh
        node = mesh.nodes[broker]
        kinds = frozenset({random.choice(_UNKNOWN)})
        if random.random() < 0.5:
            node.crash(goodbye=random.random() < 0.7)
            self._start_later(broker, random.randint(1_000, 500_000))
        elif random.random() < 0.5:
            mesh.coordinator.cut_off(broker)
            self._later(random.randint(2_000_000, 4_000_000), lambda: mesh.coordinator.reconnect(broker))
        node.lacks = kinds
        for _ in range(random.randint(3, 8)):
            self._later(random.randint(600_000, 4_000_000), lambda: self._burst(random, 1, -200, 1_000))
        if random.random() < 0.7:
            self._later(random.randint(4_500_000, 6_000_000), lambda: self._leader_dies(broker, random))
        self._later(MISHAPS["older build"] - _ELECTED_US - 500_000, self._expect_leaders_soon)

    def _expect_leaders_soon(self) -> None:
        versions = {uid: version for uid, (version, _) in self.mesh.coordinator.nodes.items()}
        self._later(_ELECTED_US, lambda: self._expect_leaders(versions))

    def _slow_upgrade(self, broker: str, random: Random) -> None:
        """An older build for more than a minute, after which leaders give up what others are preferred for."""
        mesh = self.mesh
        mesh.nodes[broker].crash(goodbye=True)
        mesh.nodes[broker].lacks = frozenset({RecordKind.INSERT})
        self._start_later(broker, random.randint(400_000, 900_000))
        for at_us in range(2_000_000, 6_000_000, 400_000):
            self._later(at_us, lambda: self._burst(random, 1, -200, 1_000))
        self._later(8_000_000, lambda: self._balances(broker))

    def _balances(self, older: str) -> None:
        mesh = self.mesh
        nodes = {
            part.uid: mesh.coordinator.nodes[part.uid][1]
            for topic in mesh.coordinator.topics.values()
            for part in topic.partitions
            if part.replicas[0] == older and self._is_stopped(older, part.uid)
        }

        def look() -> None:
            for uid, before in nodes.items():
                now = mesh.coordinator.nodes.get(uid)
                if now is not None and now[1].epoch != before.epoch and now[1].leader == before.leader:
                    mesh.history.wrong.append(f"partition {uid} was handed over to {older}, which is stopped")

        self._later(MISHAPS["slow upgrade"] - 8_500_000, look)

    def _is_stopped(self, broker: str, uid: int) -> bool:
        core = self.mesh.nodes[broker].core
        held = core.partition(uid) if core is not None else None
        return held is not None and bool(held.broken)

    def _leader_dies(self, older: str, random: Random) -> None:
        leaders = [self.mesh.leader_of(uid) for uid in self.mesh.coordinator.nodes]
        chosen = sorted({name for name in leaders if name is not None and name != older})
        if chosen:
            self.mesh.nodes[random.choice(chosen)].crash()

    def _expect_leaders(self, versions: dict[int, int]) -> None:
        """If a member of the ISR lives that is not stopped, and min_isr members live, some broker serves.

        Args:
            versions: of the partitions' nodes, long enough ago. Brokers may not have heard yet of a node that is
                newer.
        """
        mesh = self.mesh
        for topic in mesh.coordinator.topics.values():
            for part in topic.partitions:
                if mesh.coordinator.nodes[part.uid][0] != versions.get(part.uid):
                    continue
                living = [
                    found
                    for member in mesh.coordinator.nodes[part.uid][1].isr
                    if (core := mesh.nodes[member.broker_id].core) is not None
                    and (found := core.partition(part.uid)) is not None
                ]
                healthy = [held for held in living if not held.broken and not held.replica.installing]
                leader = mesh.leader_of(part.uid)
                if leader is not None:
                    core = mesh.nodes[leader].core
                    held = core.partition(part.uid) if core is not None else None
                    wrong = held is not None and bool(held.broken) and bool(healthy)
                else:
                    wrong = bool(healthy) and len(living) >= topic.min_isr
                if wrong:
                    mesh.history.wrong.append(
                        f"partition {part.uid} is not served (leader: {leader}), though a member of its ISR could"
                    )

    # -------------------------------------------------------------- disks

    def _returned_disk(self, broker: str, random: Random) -> None:
        """A disk that was replaced is put back, with the replica of a topic that was deleted meanwhile."""
        mesh = self.mesh
        others = [name for name in mesh.names if name != broker]
        self._later(0, lambda: mesh.order_topic(_EXTRA, [broker, *others[:2]]))
        self._later(random.randint(2_000_000, 3_000_000), lambda: self._replace_disk(broker, random))

    def _replace_disk(self, broker: str, random: Random) -> None:
        mesh = self.mesh
        node, topic = mesh.nodes[broker], mesh.coordinator.topics.get(_EXTRA)
        if topic is None or not node.disk.holds(topic.partitions[0].uid) or not mesh.may_lose(broker):
            return
        uid = topic.partitions[0].uid
        node.crash(goodbye=random.random() < 0.5)
        taken = node.disk.timeline, node.disk.payload
        node.disk.lose()
        node.start()
        self._later(random.randint(500_000, 2_000_000), self._delete_extra)

        def put_back() -> None:
            if uid in mesh.coordinator.tombstones:
                return
            node.crash(goodbye=random.random() < 0.5)
            node.disk.timeline, node.disk.payload = taken
            node.start()
            self._later(3_000_000, look)

        def look() -> None:
            if not node.disk.holds(uid) or (node.core is not None and node.core.partition(uid) is not None):
                mesh.history.wrong.append(f"{broker} has deleted, or serves, p{uid}, which is nobody's")

        self._later(random.randint(6_000_000, 9_000_000), put_back)

    def _delete_extra(self) -> None:
        self.mesh.coordinator.delete(_EXTRA)

    # -------------------------------------------------------------- clocks

    def _wrong_start(self, broker: str, random: Random) -> None:
        """A broker starts two hours ahead: among the others, cut off from them, or as the first of all."""
        mesh = self.mesh
        others = [name for name in mesh.names if name != broker]
        if not others or not mesh.clocks_settled():
            return
        self._burst(random, random.randint(2, 5), _HOUR_MS, _HOUR_MS + 2_000)
        for _ in range(4):
            self._later(random.randint(4_000_000, 9_000_000), lambda: self._burst(random, 1, -200, 2_000))
        how = random.choice(["among others", "cut off", "first of all", "cut off later"])
        topics = mesh.coordinator.topics.values()
        if not any(set(part.replicas) - {broker} for topic in topics for part in topic.partitions):
            how = how.replace("first of all", "among others")  # it cannot know that there were others
        self._later(
            random.randint(700_000, 1_500_000), lambda: self._start_wrong(broker, others, how, random)
        )

    def _start_wrong(self, broker: str, others: list[str], how: str, random: Random) -> None:
        mesh = self.mesh
        node = mesh.nodes[broker]
        if how == "cut off later":
            node.wall_error_us = _AHEAD_US
            self._later(1_500_000, lambda: mesh.network.isolate(broker, mesh.names))
            self._later(MISHAPS["wrong start"] - 2_000_000, mesh.network.heal)
            return
        node.crash(goodbye=True)
        if how == "first of all":
            for name in others:
                mesh.nodes[name].crash(goodbye=True)
                self._start_later(name, random.randint(200_000, 5_000_000))
        node.wall_error_us = _AHEAD_US
        if how == "cut off":
            for name in others:
                mesh.network.cut(broker, name)
            self._later(random.randint(3_000_000, 14_000_000), mesh.network.heal)
        node.start()

    def _start_later(self, name: str, after_us: int) -> None:
        def start() -> None:
            if self.mesh.nodes[name].core is None:
                self.mesh.nodes[name].start()

        self._later(after_us, start)

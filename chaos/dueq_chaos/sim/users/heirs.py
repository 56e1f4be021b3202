"""A consumer with a name whose processes die with messages in their hands: the next process gets them, and in time.

In half of the storms its topic has two partitions. Then the leader of one of them falls with the process, and the
next process is known to the leader of the other one before that leader inherits the leases. In the other half it has
one partition, and a rate, which renewals have to wait for. In fine weather, at the end, they come as fast as the rate
allows: a leader must not need anything else to wake it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Final

from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.users.consuming import ConsumingUser
from dueq_chaos.sim.users.habits import Habits
from dueq_codecs.topic_settings import AS_CREATED

DIE: Final = "heir dies"
FALL: Final = "heir and leader fall"
KINDS: Final = (DIE, FALL, FALL)
TOPIC: Final = "estate"
_FROM: Final = 92_000_000
"""The storms of smaller seeds are as they were before there was such a consumer."""
_SHARE: Final = 0.3
_CREDIT: Final = 64
_LEASE_MS: Final = 30_000
_RATE: Final = {"rate": 10, "burst": 4}
"""A message every 100 ms: a leader looks after what it has recorded within 50 ms, whatever else it forgets."""
_AT_WORK: Final = Habits(work_us=(1_500_000, 4_000_000))
"""It works longer than its processes live."""
_AT_REST: Final = Habits(work_us=(4_000_000, 4_000_000))
_ROWS: Final = (2, 8)
_HAS_THEM_US: Final = (600_000, 1_200_000)
"""By then, after they were scheduled, it has messages in its hands."""
_PROBES: Final = 12
_PROBES_LEFT: Final = 8
"""That many are enough: a leader may have to ask for credit first."""
_HELD_US: Final = 3_000_000
_RENEWED_US: Final = 10_000_000
_GAP_US: Final = 250_000
"""Longest time between two renewals; the usual is two thirds of it at most."""
_LOOK_US: Final = 20_000

Schedule = Callable[[str, list[bytes], list[int]], None]


def has_some(seed: int) -> bool:
    """Whether a seed's storm has such a consumer; from a stream of its own."""
    return seed >= _FROM and Random(seed * 0x27D4EB2F + 109).random() < _SHARE


def draw(seed: int, until_us: int) -> list[tuple[int, str, int]]:
    """Return when something of this is done, what, and the seed of the rest."""
    if not has_some(seed):
        return []
    random = Random(seed * 0x27D4EB2F + 113)
    return [
        (random.randint(0, until_us), random.choice(KINDS), random.getrandbits(32))
        for _ in range(random.randint(2, 5))
    ]


class Heirs:
    """The consumer, and its topic.

    Args:
        mesh: where.
        wire: whether frames go through the codecs.
        schedule: schedules rows of a topic.

    Attributes:
        user: the consumer.
    """

    def __init__(self, mesh: SimMesh, wire: bool, schedule: Schedule) -> None:
        self._mesh, self._schedule = mesh, schedule
        seed, brokers = mesh.world.seed, len(mesh.names)
        self._has_rate = Random(seed * 0x27D4EB2F + 127).random() < 0.5
        settings = AS_CREATED.begun(_RATE, "01" * 16) if self._has_rate else AS_CREATED
        self._uids = mesh.create_topic(
            TOPIC, 1 if self._has_rate else 2, min(3, brokers), min(2, brokers), settings=settings
        )
        client = mesh.sdk("heir")
        client.wire = wire
        self.user = ConsumingUser(
            client, mesh.history, TOPIC, credit=_CREDIT, lease_ms=_LEASE_MS, seed=seed * 31 + 127,
            name=Random(seed * 0x27D4EB2F + 131).randbytes(16),
        )  # fmt: skip
        self.user.weather, self.user.calm_from = mesh.weather, mesh.calm_from
        self.user.habits = _AT_WORK
        self._scheduled = 0

    def do(self, kind: str, random: Random) -> None:
        """Have messages come, and let the process die with them; its leader, too, if that is the kind."""
        for _ in self._uids:
            self._send(random.randint(*_ROWS), random.randint(0, 300))
        after_us = random.randint(*_HAS_THEM_US)
        self._mesh.world.after(after_us, self._mesh.until_calm(lambda: self._die(kind, random)))

    def _send(self, count: int, ahead_ms: int) -> list[bytes]:
        due_ms = self._mesh.world.wall_us // 1000 + ahead_ms
        payloads = [b"estate-%d" % (self._scheduled + at) for at in range(count)]
        self._scheduled += count
        self._schedule(TOPIC, payloads, [due_ms] * count)
        return payloads

    def _die(self, kind: str, random: Random) -> None:
        if self.user.client.core is None:
            return
        if kind == FALL:
            self._fell(random)
        self.user.client.crash()
        self.user.crashed(random.choice([1_000, 20_000, 500_000]))

    def _fell(self, random: Random) -> None:
        leader = self._mesh.leader_of(random.choice(self._uids))
        if leader is None:
            return
        node = self._mesh.nodes[leader]
        self._mesh.harm()
        node.crash(goodbye=random.random() < 0.3)
        self._mesh.world.after(
            random.randint(3_500_000, 5_000_000), lambda: node.start() if node.core is None else None
        )

    def unrenewed(self) -> list[str]:
        """Let the process die in fine weather, with messages of a limited topic; return what is renewed too late."""
        mesh, user = self._mesh, self.user
        if not (self._has_rate and user.open and user.is_free):
            return []
        user.habits = _AT_REST
        payloads = set(self._send(_PROBES, 0))
        mesh.world.run_until(lambda: len(user.held) >= _PROBES, _HELD_US, _LOOK_US)
        led = mesh.coordinator.nodes[self._uids[0]]
        held = [mesh.history.messages[found.uid, found.sequence, found.row] for found in user.held]
        messages = [message for message in held if message.payload in payloads]
        before = [len(message.deliveries) for message in messages]
        user.client.crash()
        user.crashed(_LOOK_US)

        def again() -> list[int]:
            return [
                message.deliveries[count].at_us
                for message, count in zip(messages, before, strict=True)
                if len(message.deliveries) > count
            ]

        mesh.world.run_until(lambda: len(again()) == len(messages), _RENEWED_US, _LOOK_US)
        user.habits = Habits()
        came = again()
        if len(messages) < _PROBES_LEFT or mesh.coordinator.nodes[self._uids[0]] != led:
            return []
        if len(came) < len(messages):
            return [
                f"{len(messages) - len(came)} of {len(messages)} leases are not renewed, while nothing is wrong"
            ]
        came.sort()
        gap_us = max(later - sooner for sooner, later in pairwise(came))
        if gap_us > _GAP_US:
            return [f"no lease is renewed for {gap_us} us, at a rate of {_RATE}"]
        return []

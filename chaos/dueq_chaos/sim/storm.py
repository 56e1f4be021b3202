"""One whole run from one seed: traffic, faults, quiet, and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from dueq import limits
from dueq_chaos.sim.clients import SimProducer
from dueq_chaos.sim.mesh import SimMesh

_QUIET_US = 90_000_000
_LOOK_US = 20_000
"""So often the end of the storm is looked for."""
_CLOCK_ERROR_US = 1_000
"""Half the best round trip: what remains of a clock that is ahead (mesh time)."""


@dataclass
class Outcome:
    """What a run came to.

    Attributes:
        seed: which repeats it exactly.
        verdicts: everything that must not have happened.
        simulated_us: how long the world ran.
        faults: how many were injected, by kind.
        messages: acknowledged inserts.
        trace: the last lines of what happened.
    """

    seed: int
    verdicts: list[str]
    simulated_us: int
    messages: int
    faults: dict[str, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)


class Storm:
    """A mesh of three with two consumers and a producer, in weather that the seed decides."""

    def __init__(self, seed: int) -> None:
        # Some meshes keep little in memory and little of their logs: cold reads, evictions, snapshots.
        small = Random(seed ^ 0x5EED)
        self.mesh = SimMesh(
            seed,
            hot_rows_total=small.choice([limits.HOT_ROWS_TOTAL, 16]),
            log_retain_bytes=small.choice([limits.LOG_RETAIN_BYTES, 2_000]),
        )
        self.random = self.mesh.world.random
        self.uids = self.mesh.create_topic("storm", 2)
        self.producer: SimProducer = self.mesh.producer()
        self.consumers = [self.mesh.consumer(name, "storm") for name in ("consumer-1", "consumer-2")]
        self.faults: dict[str, int] = {}
        self._batches = 0
        self._kinds: dict[str, Callable[[str], None]] = {
            "crash": lambda broker: self.mesh.nodes[broker].crash(),
            "crash two": self._crash_two,
            "isolate": lambda broker: self.mesh.network.isolate(broker, self.mesh.names),
            "isolate from all": lambda broker: self.mesh.network.isolate(
                broker, self.mesh.names + list(self.mesh.clients)
            ),
            "cut one way": self._cut_one_way,
            "pause": self._pause,
            "cut from coordinator": self.mesh.coordinator.cut_off,
            "slow disk": self._slow_disk,
            "lose disk": self._lose_disk,
            "set clock": self._set_clock,
        }

    def run(self) -> Outcome:
        """Run it to the end."""
        self._choose_weather()
        for _ in range(self.random.randint(2, 6)):
            for _ in range(self.random.randint(1, 8)):
                self._traffic()
            self._fault()
            self.mesh.world.run(self.random.randint(10_000, 5_000_000))
            if self.random.random() < 0.6:
                self.mesh.calm()
            self.mesh.world.run(self.random.randint(10_000, 3_000_000))
        verdicts = self._calm_down()
        world = self.mesh.world
        return Outcome(
            world.seed,
            verdicts,
            world.now_us,
            len(self.mesh.history.messages),
            self.faults,
            world.trace[-200:],
        )

    def _choose_weather(self) -> None:
        """Each seed turns some kinds of bad weather fully off."""
        weather, random = self.mesh.network.weather, self.random
        if random.random() < 0.5:
            weather.lost_share = random.choice([0, 0.01, 0.1])
            weather.twice_share = random.choice([0, 0.05])
            weather.slow_share = random.choice([0, 0.02, 0.1])
        if random.random() < 0.4:
            self.mesh.coordinator.lose_answer_share = 0.3

    # -------------------------------------------------------------- traffic

    def _traffic(self) -> None:
        random, world = self.random, self.mesh.world
        now_ms = world.wall_us // 1000
        rows = random.randint(1, 12)
        payloads = [b"%d-%d" % (self._batches, row) for row in range(rows)]
        dues = [now_ms + random.randint(-200, 4_000) for _ in range(rows)]
        self.producer.schedule("storm", random.choice(self.uids), payloads, dues)
        self._batches += 1
        world.run(random.randint(1_000, 200_000))
        if random.random() < 0.4:
            self._change_some(now_ms)

    def _change_some(self, now_ms: int) -> None:
        """Cancel or move a few messages of one partition that nobody has touched."""
        uid = self.random.choice(self.uids)
        untouched = [
            key
            for key, message in self.mesh.history.messages.items()
            if key[0] == uid and not (message.deliveries or message.cancel_asked or message.maybe_dues)
        ]
        chosen = self.random.sample(untouched, min(3, len(untouched)))
        if not chosen:
            return
        if self.random.random() < 0.5:
            self.producer.cancel("storm", chosen)
        else:
            self.producer.move("storm", chosen, [now_ms + self.random.randint(-100, 5_000) for _ in chosen])

    # -------------------------------------------------------------- faults

    def _fault(self) -> None:
        kind = self.random.choice(list(self._kinds))
        broker = self.random.choice(self.mesh.names)
        self.mesh.world.tell("fault", f"{kind}: {broker}")
        self.faults[kind] = self.faults.get(kind, 0) + 1
        self._kinds[kind](broker)

    def _crash_two(self, broker: str) -> None:
        for name in self.random.sample(self.mesh.names, 2):
            self.mesh.nodes[name].crash()

    def _cut_one_way(self, broker: str) -> None:
        other = self.random.choice([name for name in self.mesh.names if name != broker])
        self.mesh.network.cut(broker, other, both=False)

    def _pause(self, broker: str) -> None:
        if self.mesh.nodes[broker].core is not None:
            self.mesh.nodes[broker].pause(self.random.randint(100_000, 6_000_000))

    def _slow_disk(self, broker: str) -> None:
        self.mesh.nodes[broker].disk.slow_us = self.random.randint(1_000, 800_000)

    def _set_clock(self, broker: str) -> None:
        """A wall clock is set: by a little, or by an hour, forward or back."""
        error_us = self.random.choice([20_000, 200_000, 3_000_000, 3_600_000_000])
        self.mesh.nodes[broker].wall_error_us = self.random.choice([-1, 1]) * error_us

    def _lose_disk(self, broker: str) -> None:
        """Only where two others hold everything: more would be a loss by design."""
        whole = all(len(node.isr) == 3 for _, node in self.mesh.coordinator.nodes.values())
        if whole and all(node.core is not None for node in self.mesh.nodes.values()):
            node = self.mesh.nodes[broker]
            node.crash()
            node.disk.lose()
            node.start()

    # -------------------------------------------------------------- quiet

    def _calm_down(self) -> list[str]:
        mesh = self.mesh
        mesh.calm()
        whole = mesh.world.run_until(lambda: mesh.whole() and mesh.quiet(), _QUIET_US, _LOOK_US)
        mesh.world.run(12_000_000)
        mesh.world.run_until(lambda: mesh.quiet() and mesh.history.done(), _QUIET_US, _LOOK_US)
        verdicts = mesh.history.verdicts(clock_error_us=_CLOCK_ERROR_US) + mesh.failures()
        if not whole:
            waiting = {name: len(client.calls) for name, client in mesh.clients.items()}
            verdicts.append(f"no quiet: whole {mesh.whole()}, requests without an answer {waiting}")
        return verdicts

"""The named scenarios, written for about a minute each, and the random mode.

A scenario is stretched or shrunk to the time it is given (`plan.fitted`): rests between faults grow and shrink with
it, the faults themselves only shrink.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random

from dueq_chaos.nemesis.plan import Plan, Step, in_order

BROKERS = ("b1", "b2", "b3")


@dataclass(frozen=True)
class Scenario:
    """A plan with a name.

    Attributes:
        story: one line: what breaks, and what is expected to hold.
        steps: what breaks when.
    """

    story: str
    steps: Plan

    @property
    def kinds(self) -> list[str]:
        """The kinds of faults in it, sorted."""
        return sorted({step.kind for step in self.steps})


def _rolling() -> Plan:
    return tuple(Step(5 + 12 * i, 3, "kill", broker) for i, broker in enumerate(BROKERS * 2) if i < 5)


def _everything() -> Plan:
    return (
        Step(3, 5, "kill", "leader"),
        Step(5, 6, "zookeeper-kill"),
        Step(14, 8, "slow", "follower", 60),
        Step(16, 4, "pause", "leader"),
        Step(24, 6, "cut", "leader"),
        Step(27, 3, "kill", "follower"),
        Step(27, 8, "clock", "leader", 20),
        Step(34, 6, "fill-disk", "all"),
        Step(36, 4, "cut-out", "leader"),
        Step(42, 6, "lossy", "leader", 0.1),
        Step(44, 4, "zookeeper-pause"),
        Step(45, 1, "kill-consumer"),
        Step(51, 3, "kill", "all"),
    )


SCENARIOS: Mapping[str, Scenario] = {
    "leader-kill": Scenario(
        "The leader of most partitions dies, three times; others take over, nothing is lost.",
        (Step(5, 6, "kill", "leader"), Step(22, 6, "kill", "leader"), Step(40, 6, "kill", "leader")),
    ),
    "follower-kill": Scenario(
        "A follower dies, three times; deliveries go on.",
        (Step(5, 6, "kill", "follower"), Step(22, 6, "kill", "follower"), Step(40, 6, "kill", "follower")),
    ),
    "rolling-restart": Scenario(
        "Each broker in turn is killed and comes back after three seconds.", _rolling()
    ),
    "all-killed": Scenario(
        "All brokers die at once, as in a power failure, twice; what was acknowledged is on the disks.",
        (Step(8, 4, "kill", "all"), Step(35, 4, "kill", "all")),
    ),
    "zookeeper-outage": Scenario(
        "ZooKeeper dies for long, then hangs; deliveries go on.",
        (Step(5, 20, "zookeeper-kill"), Step(38, 12, "zookeeper-pause")),
    ),
    "zookeeper-and-leader": Scenario(
        "ZooKeeper is away when the leader dies: nobody may take over until it is back, nothing is lost.",
        (Step(5, 12, "zookeeper-kill"), Step(8, 5, "kill", "leader"), Step(40, 4, "cut-zookeeper", "leader")),
    ),
    "pause-leader": Scenario(
        "The leader is stopped in its tracks (SIGSTOP), for short and long; awake again it must not deliver as before.",
        (Step(5, 1, "pause"), Step(12, 3, "pause"), Step(24, 8, "pause"), Step(42, 15, "pause")),
    ),
    "split": Scenario(
        "The leader is cut off from the other brokers, then from everybody.",
        (Step(5, 10, "cut", "leader"), Step(30, 15, "isolate", "leader")),
    ),
    "one-way-split": Scenario(
        "The leader hears the others but is not heard, then the other way round.",
        (Step(5, 10, "cut-out", "leader"), Step(30, 10, "cut-in", "leader")),
    ),
    "slow-follower": Scenario(
        "The network to a follower is slow, then lossy; then the one of the leader.",
        (
            Step(5, 10, "slow", "follower", 50),
            Step(20, 10, "lossy", "follower", 0.1),
            Step(35, 8, "slow", "leader", 200),
            Step(47, 6, "lossy", "leader", 0.05),
        ),
    ),
    "resets": Scenario(
        "All connections of a broker break, again and again.",
        tuple(Step(4 + 4 * i, 1, "reset", BROKERS[i % 3]) for i in range(12)),
    ),
    "full-disk": Scenario(
        "A broker's disk fills, first to its mark, then to the last byte; inserts are refused, acks go on.",
        (Step(5, 12, "fill-disk", "all", 0.06), Step(30, 12, "fill-disk", "all", 0)),
    ),
    "clock-jump": Scenario(
        "Wall clocks are set: by seconds, by an hour, back and forth; nothing comes early.",
        (
            Step(5, 8, "clock", "leader", 3),
            Step(18, 8, "clock", "leader", -3),
            Step(31, 8, "clock", "follower", 3600),
            Step(44, 8, "clock", "leader", -3600),
        ),
    ),
    "consumers-die": Scenario(
        "Consumers are killed with messages in their hands; they come again when the leases are over.",
        tuple(Step(4 + 6 * i, 1, "kill-consumer") for i in range(9)),
    ),
    "everything": Scenario("A bit of all, several at once.", _everything()),
}


@dataclass(frozen=True)
class _Weather:
    """How one kind appears in the random mode."""

    weight: float
    for_s: tuple[float, float]
    whos: tuple[str, ...] = ("leader", "follower", *BROKERS)
    amounts: tuple[float, ...] = (0,)


_WEATHER: Mapping[str, _Weather] = {
    "kill": _Weather(3, (0.5, 8), ("leader", "leader", "follower", "all", *BROKERS)),
    "pause": _Weather(3, (0.3, 15)),
    "cut": _Weather(2, (0.5, 12)),
    "cut-out": _Weather(1.5, (0.5, 12)),
    "cut-in": _Weather(1.5, (0.5, 12)),
    "isolate": _Weather(1.5, (0.5, 12)),
    "cut-zookeeper": _Weather(1.5, (1, 15)),
    "slow": _Weather(1.5, (2, 12), amounts=(5, 50, 250)),
    "lossy": _Weather(1.5, (2, 12), amounts=(0.01, 0.1, 0.3)),
    "reset": _Weather(1, (0.2, 1)),
    "fill-disk": _Weather(1.5, (2, 12), ("all",), (0, 0, 0.03, 0.1)),
    "clock": _Weather(1.5, (2, 15), amounts=(-3600, -5, -0.3, 0.3, 5, 3600)),
    "zookeeper-kill": _Weather(1, (1, 15), ("all",)),
    "zookeeper-pause": _Weather(1, (1, 15), ("all",)),
    "kill-consumer": _Weather(1.5, (0.5, 2), ("all",)),
}
RANDOM_KINDS = tuple(_WEATHER)
"""The kinds of faults that the random mode draws from."""
_CALM_S = (0.5, 8.0)
_AT_ONCE = 3


def at_random(seed: int, duration_s: float, possible: Collection[str], only: Collection[str] = ()) -> Plan:
    """Draw a plan: up to three faults at once, with rests; each seed turns some kinds off and weights the rest wildly.

    Args:
        seed: decides everything (together with what is possible).
        duration_s: when the last fault shall have ended, seconds.
        possible: the kinds that this machine allows.
        only: the kinds to draw from, each as usual; empty: all.
    """
    random = Random(seed)
    weights = {}
    for kind, weather in _WEATHER.items():
        # Drawn for impossible kinds too, so that one seed means much the same on every machine.
        weight = weather.weight * random.choice([0, 0.5, 1, 1, 2, 5])
        if kind in possible:
            weights[kind] = weight
    if only:
        weights = {kind: _WEATHER[kind].weight for kind in weights if kind in only}
    elif not any(weights.values()):
        weights = {kind: _WEATHER[kind].weight for kind in weights}
    steps: list[Step] = []
    at_s = random.uniform(1, 4)
    while weights and at_s < duration_s - 1:
        for _ in range(random.choice([1, 1, 1, 2, 2, _AT_ONCE])):
            (kind,) = random.choices(list(weights), list(weights.values()))
            weather = _WEATHER[kind]
            begin_s = at_s + random.uniform(0, 2)
            for_s = min(random.uniform(*weather.for_s), duration_s - begin_s)
            if for_s > 0:
                who, amount = random.choice(weather.whos), random.choice(weather.amounts)
                steps.append(Step(round(begin_s, 3), round(for_s, 3), kind, who, amount))
        at_s = max([at_s, *(step.end_s for step in steps)]) + random.uniform(*_CALM_S)
    return in_order(steps)

"""The plan of a storm: options and a list of steps, all drawn from one seed before anything runs.

Because a step carries its own instant and its own seed, any part of a plan can be run without the rest: that is how
a failure is shrunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from dueq import limits
from dueq_chaos.sim.environment import scale
from dueq_chaos.sim.storms import extremes
from dueq_chaos.sim.storms.topologies import Topology, draw_topology, is_drawn
from dueq_chaos.sim.users import asking, bearing, deeds, heirs, hiding, idlers, repeating, streams, triggering
from dueq_chaos.sim.users.habits import Habits

TRAFFIC = {
    "schedule": 40, "schedule far": 4, "schedule long": 1, "alter": 18, "reopen consumer": 3,
    "change habits": 4, "crash client": 2, "create topic": 1, "delete topic": 1, "impatient schedule": 2,
}  # fmt: skip
"""Kinds of traffic and how often each comes by default."""
FAULTS = (
    "crash", "crash two", "crash at write", "isolate", "isolate from all", "cut one way", "cut client", "pause",
    "cut from coordinator", "coordinator away", "slow disk", "failing disk", "full disk", "lose disk",
    "set clock", "drift clock", "bad network", "restart",
)  # fmt: skip

CARELESS = (
    "wrong ids", "ids twice", "long list", "late retry", "forked producer", "stale tokens", "settled twice",
    "late frames of the gone", "browse", "hung up",
)  # fmt: skip
"""Deeds of careless users (see `careless`), and of readers meanwhile."""
CONFIGURING = ("pause topic", "pause for a while", "change settings", "add partitions", "purge", "limit rate")
"""Changes of topics in use (see `configuring`)."""
_CONFIGURED = (1, 6, 11)
"""Of every so many seeds, but for the first few, these have such changes."""
_FEW_KINDS_FROM = 4096
"""From this seed on a storm has two kinds of them: one undoes what another would show."""
PLOTS = (
    "overthrow", "wrong heir", "doze", "naps", "damaged disk", "left behind", "slow reads", "late frames",
    "damaged bodies", "slow coordinator",
)  # fmt: skip
"""Misfortunes of several faults and some traffic (see `plots`)."""

LOSSES = (
    "newer checkpoint", "timeline gone", "payload gone", "timeline older", "payload older", "payload swapped",
    "put aside half-way",
)  # fmt: skip
"""A part of what one disk holds is lost, older than the rest, or of another build (see `losses`)."""

MISHAPS = {
    "older build": 16_000_000,
    "wrong start": 16_000_000,
    "slow upgrade": 75_000_000,
    "returned disk": 16_000_000,
}
"""Operators' mistakes in a mesh where nothing else goes wrong (see `mishaps`), and how long each lasts, µs."""

DIRECTED: dict[int, tuple[str, dict[str, Any]]] = {
    0: ("late cancels", {}),
    1: ("forgetful under a wrong heir", {"partitions": 1, "consumers": ((64, 5_000), (64, 5_000))}),
    2: ("pushes cut off", {"consumers": ((64, 30_000), (64, 30_000)), "relayed": False}),
    3: ("extending in vain", {"consumers": ((64, 1_500), (64, 1_500)), "relayed": False}),
    4: ("late pushes", {"consumers": ((64, 5_000), (64, 30_000))}),
    5: ("stale scans", {"hot_rows_total": 16, "partitions": 1}),
    6: ("chunks missed", {}),
    7: ("late changes", {}),
    8: ("wiped and asked", {"partitions": 1}),
    9: ("deep log", {"partitions": 1, "lost": 0.0, "twice": 0.0, "slow": 0.0}),
    10: ("old frames", {}),
    11: ("echoes", {"log_retain_bytes": 2_000}),
    12: ("alone", {}),
    13: ("halfway", {}),
    14: ("joins unseen", {}),
    15: ("first words", {"log_retain_bytes": 2_000}),
    16: ("leads again", {}),
    19: (
        "asleep on leases",
        {
            "partitions": 1,
            "relayed": True,
            "watch_us": 500_000,
            "consumers": ((64, 1_500), (64, 30_000), (64, 5_000)),
        },
    ),
}
"""Misfortunes to which a whole storm is given, with the options that they need (see `directed`), by slot.

A slot belongs to its kind for good: seeds that find something stay as they are when others come.
"""
_DIRECTED_EVERY, _DIRECTED_AT, _DIRECTED_SLOTS = 16, 13, 20
"""Of every so many seeds one has a directed storm, this one; and of those each has a slot, one after the other."""

SELDOM: dict[int, tuple[str, dict[str, Any]]] = {
    0: ("cut while syncing", {"partitions": 1, "lost": 0.0, "slow": 0.0}),
    1: ("refused in the end", {"partitions": 1, "lost": 0.0, "slow": 0.0}),
    2: ("acked at the end", {"consumers": ((64, 1_200), (64, 1_200)), "relayed": False}),
    3: ("jobs at their instant", {"partitions": 2}),
    4: ("filled across leaders", {"partitions": 1, "log_retain_bytes": 2_000, "snapshot_part_bytes": 500}),
    5: (
        "acks of long ago",
        {"partitions": 1, "lost": 0.0, "slow": 0.0, "lose_answer": 0.0, "watch_us": 3_000},
    ),
    6: ("rolling upgrade", {}),
    7: ("upgrade without one", {"log_retain_bytes": 2_000}),
}
"""More of these (see `seldom`, `upgrades`), by slot: they share another of every so many seeds."""
_SELDOM_AT, _SELDOM_SLOTS = 4, 8
_CROWDED_FROM = 89_000_000
"""From this seed on some storms have little room for keys."""
_WIPED_FROM = 90_000_000
"""From this seed on disks delete partitions slowly in some storms."""
_EXTREME = (0, 8, 10, 12)
"""And in these, but for the first few, something is extreme (see `extremes`)."""


@dataclass(frozen=True)
class Step:
    """One thing to do.

    Attributes:
        at_us: when, from the beginning of the storm.
        kind: what, one of TRAFFIC, FAULTS, PLOTS, LOSSES or DIRECTED, or "calm".
        seed: of everything that it still has to choose.
    """

    at_us: int
    kind: str
    seed: int

    @property
    def is_fault(self) -> bool:
        """Whether it does harm."""
        directed = {kind for kind, _ in (*DIRECTED.values(), *SELDOM.values())}
        return self.kind in {*FAULTS, *PLOTS, *LOSSES, *MISHAPS, *directed}


@dataclass(frozen=True)
class Options:
    """The mesh and its weather.

    Attributes:
        hot_rows_total, log_retain_bytes: small ones make cold reads, evictions and snapshots.
        topology: how many brokers, and which topics.
        lost, twice, slow: shares of messages between brokers.
        lose_answer: share of compare-and-sets whose outcome stays unknown.
        watch_us: how late watches may come.
        wire: clients' frames go through the codecs.
        relayed: the last consumer reaches one broker only.
        consumers: how many, their credit and leases.
    """

    hot_rows_total: int = limits.HOT_ROWS_TOTAL
    log_retain_bytes: int = limits.LOG_RETAIN_BYTES
    lost: float = 0.0
    twice: float = 0.0
    slow: float = 0.0
    lose_answer: float = 0.0
    watch_us: int = 3_000
    wire: bool = False
    relayed: bool = False
    partitions: int = 2
    topology: Topology = field(default_factory=Topology)
    consumers: tuple[tuple[int, int], ...] = ((64, 5_000), (64, 5_000))
    """(credit, lease in ms) of each."""
    habits: tuple[Habits, ...] = ()
    snapshot_part_bytes: int = limits.SNAPSHOT_CHUNK_BYTES
    """How much of a snapshot is read at a time."""
    limits: tuple[tuple[str, int], ...] = ()
    """Limits that are smaller than in life (see `scale`)."""
    disks_us: tuple[int, ...] = ()
    """Delay of every commit of each broker, throughout the storm."""
    delay_us: tuple[int, int] | None = None
    """How long messages take at least and at most; None: as usual."""
    set_us: int = 0
    """Delay of every change of a node."""


@dataclass(frozen=True)
class Plan:
    """Everything that a storm does.

    Attributes:
        seed: of the world: delays, and whatever is left to chance.
        until_us: how long the storm lasts before quiet begins.
    """

    seed: int
    options: Options
    steps: tuple[Step, ...]
    until_us: int
    weights: dict[str, int] = field(default_factory=dict)


_FEW_BYTES = 2_000
"""Credit in bytes of consumers who have little: less than a few messages of a backlog may have."""
_PLOTTED = 0.5
"""Share of the seeds whose storms have plots."""
_CARELESS = 0.34
"""Share of the seeds with careless users; from a stream of their own."""
_MISHAP = 0.6
"""Share of the seeds with a topology of their own that have a mishap, and no other faults."""
_NOTHING_ELSE = 0.5
"""Share of those in which nothing else goes wrong: what a plot does is seen best in fine weather."""


def draw(seed: int, minutes: float = 0.0) -> Plan:
    """Draw a plan.

    Args:
        seed: decides everything.
        minutes: how long the storm lasts (simulated); 0: some seconds, as the seed will have it.
    """
    random = Random(seed * 0x9E3779B1 + 1)
    options = _options(random)
    weights = _weights(random)
    until_us = int(minutes * 60_000_000) or random.randint(3_000_000, 20_000_000)
    steps: list[Step] = []
    at_us = 0
    while at_us < until_us:
        at_us = _episode(random, weights, steps, at_us)
    plots = Random(seed * 0x85EBCA6B + 7)
    if plots.random() < _PLOTTED:
        options = replace(options, snapshot_part_bytes=plots.choice([limits.SNAPSHOT_CHUNK_BYTES, 500]))
        chosen = _plots(plots, at_us)
        if plots.random() < _NOTHING_ELSE:
            steps = [step for step in steps if step.kind not in FAULTS]
        steps += chosen
    turn, place = divmod(seed, _DIRECTED_EVERY)
    directed = place == _DIRECTED_AT and turn % _DIRECTED_SLOTS in DIRECTED
    if directed:
        kind, wanted = DIRECTED[turn % _DIRECTED_SLOTS]
        options = replace(options, **wanted)
        steps, at_us = _directed(Random(seed * 0xC2B2AE35 + 5), kind, steps, at_us)
    elif turn and place in _EXTREME and not is_drawn(seed):
        options, steps = _stretched(Random(seed * 0x9E3779B1 + 23), options, steps, at_us)
    elif turn and place == _SELDOM_AT and turn % _SELDOM_SLOTS in SELDOM and not is_drawn(seed):
        directed = True
        kind, wanted = SELDOM[turn % _SELDOM_SLOTS]
        options = replace(options, **wanted)
        steps, at_us = _directed(Random(seed * 0xC2B2AE35 + 5), kind, steps, at_us)
    steps += _jobs(Random(seed * 0x27D4EB2F + 3), at_us)
    steps += _recurrences(Random(seed * 0x5851F42D + 19), at_us)
    if place not in (_DIRECTED_AT, _SELDOM_AT):
        options, steps = _long_times(Random(seed * 0x165667B1 + 11), options, steps, at_us)
    if turn and place in _CONFIGURED:
        kinds = (
            CONFIGURING if seed < _FEW_KINDS_FROM else Random(seed * 0x9FB21C65 + 67).sample(CONFIGURING, 2)
        )
        steps += _configuring(Random(seed * 0x9FB21C65 + 29), kinds, at_us)
    steps += _headed(Random(seed * 0x5851F42D + 43), at_us)
    steps += _shared(Random(seed * 0x5851F42D + 47), at_us)
    steps += _losses(Random(seed * 0x165667B1 + 9), at_us)
    if deeds.is_among(seed):
        steps += [Step(*found) for found in deeds.draw(seed, at_us)]
    steps += [Step(*found) for found in repeating.draw(seed, at_us)]
    steps += [Step(*found) for found in triggering.draw(seed, at_us)]
    steps += [Step(*found) for found in idlers.draw(seed, at_us)]
    steps += [Step(*found) for found in heirs.draw(seed, at_us)]
    steps += [Step(*found) for found in streams.draw(seed, at_us)]
    if hiding.has_some(seed):
        options = replace(options, hot_rows_total=hiding.HOT_ROWS)
        steps += [Step(*found) for found in hiding.draw(seed, at_us)]
    careless = Random(seed * 0x2545F491 + 11)
    if careless.random() < _CARELESS and not directed:
        options = replace(options, habits=tuple(map(partial(_shortening, careless), options.habits)))
        steps += _careless(careless, at_us)
        steps += _hung_up(Random(seed * 0x9FB21C65 + 13), at_us)
    options = replace(options, topology=draw_topology(seed, options.partitions))
    if any(shape.kind == "priority" for shape in options.topology.topics):
        options, steps = _ranked(Random(seed * 0x9E3779B1 + 37), options, steps, at_us)
    keyed: list[Step] = []
    if any(shape.keys == "unique" for shape in options.topology.topics):
        keyed = _keyed(Random(seed * 0x5851F42D + 53), at_us)
        keyed += [Step(*found) for found in bearing.draw(seed, at_us)]
    if seed >= _CROWDED_FROM and (keyed or any(step.kind in repeating.KINDS for step in steps)):
        options = _crowded(Random(seed * 0x27D4EB2F + 103), options)
    if seed >= _WIPED_FROM:
        options = _wiped(Random(seed * 0x27D4EB2F + 107), options)
    if is_drawn(seed) and (mishaps := _mishaps(Random(seed * 0x9E3779B1 + 13))):
        steps = [step for step in steps if step.kind in {*TRAFFIC, "load job", "backlog", "recur"}] + mishaps
        at_us = max(at_us, mishaps[-1].at_us)
        options = replace(options, limits=())
    steps += keyed
    steps += [Step(*found) for found in asking.draw(seed, ((step.at_us, step.kind) for step in steps))]
    return Plan(seed, options, tuple(sorted(steps, key=lambda step: step.at_us)), at_us, weights)


def _directed(random: Random, kind: str, steps: list[Step], until_us: int) -> tuple[list[Step], int]:
    """One misfortune, several times over, among the traffic that there was anyhow; it clears up in between."""
    steps = [step for step in steps if step.kind in TRAFFIC]
    at_us = 0
    for _ in range(random.randint(2, 4)):
        at_us += random.randint(200_000, 1_500_000)
        steps.append(Step(at_us, kind, random.getrandbits(32)))
        at_us += random.randint(6_000_000, 9_000_000)
        steps.append(Step(at_us, "calm", 0))
        at_us += random.choice([1_000_000, 4_000_000])
    return steps, max(at_us, until_us)


def _stretched(
    random: Random, options: Options, steps: list[Step], until_us: int
) -> tuple[Options, list[Step]]:
    """Some things at the end of their scales; from a stream of its own."""
    found = extremes.stretch(random, options.consumers, options.habits, until_us)
    options = replace(options, consumers=found.consumers, habits=found.habits, **found.options)
    return options, steps + [Step(at_us, kind, random.getrandbits(32)) for at_us, kind in found.steps]


def _jobs(random: Random, until_us: int) -> list[Step]:
    """Jobs to load, in every third seed; from a stream of their own, too."""
    if random.random() < 0.66:
        return []
    return [
        Step(random.randint(0, until_us), "load job", random.getrandbits(32))
        for _ in range(random.randint(1, 8))
    ]


def _configuring(random: Random, kinds: Sequence[str], until_us: int) -> list[Step]:
    """Topics are paused, resumed and changed; from a stream of their own, too."""
    return [
        Step(random.randint(0, until_us), random.choice(kinds), random.getrandbits(32))
        for _ in range(random.randint(2, 8))
    ]


def _ranked(random: Random, options: Options, steps: list[Step], until_us: int) -> tuple[Options, list[Step]]:
    """More that is ready than consumers take, and urgent messages behind it; from a stream of its own, too."""
    if random.random() < 0.6:
        consumers = tuple((random.choice([1, 1, 2, 5, 64]), lease_ms) for _, lease_ms in options.consumers)
        options = replace(options, consumers=consumers)
    if random.random() < 0.6:
        options = replace(options, hot_rows_total=random.choice([16, 48]))
    if random.random() < 0.4:
        consumers = tuple((random.choice([5, 64]), random.choice([1_500, 5_000])) for _ in range(2))
        few = *options.limits, ("CONSUMER_CREDIT_BYTES", _FEW_BYTES)
        options = replace(options, limits=few, consumers=consumers)
    return options, steps + [
        Step(random.randint(0, until_us), "backlog", random.getrandbits(32))
        for _ in range(random.randint(1, 5))
    ]


def _recurrences(random: Random, until_us: int) -> list[Step]:
    """Recurrences, in every third seed; from a stream of their own, too."""
    if random.random() < 0.66:
        return []
    return [
        Step(random.randint(0, until_us), "recur", random.getrandbits(32))
        for _ in range(random.randint(2, 24))
    ]


def _headed(random: Random, until_us: int) -> list[Step]:
    """Messages with headers, in every fourth seed; from a stream of their own, too."""
    if random.random() < 0.75:
        return []
    return [
        Step(random.randint(0, until_us), "schedule headed", random.getrandbits(32))
        for _ in range(random.randint(2, 12))
    ]


def _keyed(random: Random, until_us: int) -> list[Step]:
    """Messages with few unique keys, and looks by these."""
    return [
        Step(
            random.randint(0, until_us),
            random.choice(("schedule keyed", "schedule keyed", "schedule keyed", "look by key")),
            random.getrandbits(32),
        )
        for _ in range(random.randint(20, 90))
    ]


def _crowded(random: Random, options: Options) -> Options:
    """Little room for unique keys and idempotency keys, in every third seed; from a stream of its own, too."""
    if random.random() < 0.66:
        return options
    few = ("NAMES_MAX", random.choice([3, 6, 12])), ("NAMES_LOOKED_UP_MAX", random.choice([1, 64]))
    return replace(options, limits=(*options.limits, *few))


def _wiped(random: Random, options: Options) -> Options:
    """A commit deletes few rows of a partition that begins anew or is dropped; from a stream of its own, too."""
    if random.random() < 0.6:
        return options
    return replace(options, limits=(*options.limits, ("WIPE_ROWS", random.choice([1, 4, 16]))))


def _shared(random: Random, until_us: int) -> list[Step]:
    """Messages with one body, and ends of its grace, in every fourth seed; from a stream of their own, too."""
    if random.random() < 0.75:
        return []
    return [
        Step(
            random.randint(0, until_us),
            random.choice(("schedule shared", "close body")),
            random.getrandbits(32),
        )
        for _ in range(random.randint(4, 30))
    ]


def _losses(random: Random, until_us: int) -> list[Step]:
    """Partial losses, in every fifth seed; from a stream of their own, too."""
    if random.random() < 0.8:
        return []
    return [
        Step(random.randint(0, until_us), random.choice(LOSSES), random.getrandbits(32))
        for _ in range(random.randint(1, 4))
    ]


def _careless(random: Random, until_us: int) -> list[Step]:
    """A few kinds of carelessness, each several times."""
    kinds = random.sample(CARELESS[:-1], random.randint(1, 4))
    return [
        Step(random.randint(0, until_us), random.choice(kinds), random.getrandbits(32))
        for _ in range(random.randint(4, 24))
    ]


def _hung_up(random: Random, until_us: int) -> list[Step]:
    """Connections that break under a request, in half of those storms; from a stream of their own, too."""
    if random.random() < 0.5:
        return []
    return [
        Step(random.randint(0, until_us), "hung up", random.getrandbits(32))
        for _ in range(random.randint(2, 6))
    ]


def _shortening(random: Random, habits: Habits) -> Habits:
    """Half of those who extend leases (and some who did not) do so to all kinds of lengths."""
    if random.random() < 0.5:
        return habits
    return replace(habits, extend=max(habits.extend, random.random() * 0.5), shorten=random.random())


def _long_times(
    random: Random, options: Options, steps: list[Step], until_us: int
) -> tuple[Options, list[Step]]:
    """Small limits in every fourth seed, a long calm at the end of some; time-outs that are mostly cancelled."""
    steps = list(steps)
    if random.random() < 0.25:
        options = replace(options, limits=scale.draw(random))
        if random.random() < 0.4:
            steps.append(Step(until_us, "long calm", random.getrandbits(32)))
    if random.random() < 0.15:
        for _ in range(random.randint(1, 3)):
            steps.append(Step(random.randint(0, until_us), "time-outs", random.getrandbits(32)))
    return options, steps


def _mishaps(random: Random) -> list[Step]:
    """One kind of mishap, up to three times; each clears up in the end."""
    if random.random() >= _MISHAP:
        return []
    [kind] = random.choices(list(MISHAPS), (4, 4, 1, 2))
    at_us, steps = 0, []
    for _ in range(random.randint(1, 3) if kind not in ("slow upgrade", "returned disk") else 1):
        at_us += random.randint(200_000, 1_500_000)
        steps.append(Step(at_us, kind, random.getrandbits(32)))
        at_us += MISHAPS[kind]
        steps.append(Step(at_us, "calm", 0))
        at_us += random.choice([2_000_000, 4_000_000])
    return steps


def _plots(random: Random, until_us: int) -> list[Step]:
    """A few misfortunes of one or two kinds; from a stream of their own, so that other plans stay as they are."""
    kinds = random.sample(PLOTS, random.choice([1, 1, 2]))
    return [
        Step(random.randint(0, until_us), random.choice(kinds), random.getrandbits(32))
        for _ in range(random.randint(1, 5))
    ]


def _episode(random: Random, weights: dict[str, int], steps: list[Step], at_us: int) -> int:
    """Some traffic, some faults, mostly some calm; returns when it is over."""
    traffic = {kind: weights[kind] for kind in TRAFFIC}
    faults = {kind: weights[kind] for kind in FAULTS if weights[kind]}
    span_us = random.randint(500_000, 5_000_000)
    for _ in range(random.randint(1, 10)):
        kind = random.choices(list(traffic), list(traffic.values()))[0]
        steps.append(Step(at_us + random.randint(0, span_us), kind, random.getrandbits(32)))
    for _ in range(random.choice([0, 1, 1, 1, 2, 3]) if faults else 0):
        kind = random.choices(list(faults), list(faults.values()))[0]
        steps.append(Step(at_us + random.randint(0, span_us), kind, random.getrandbits(32)))
    end_us = at_us + span_us + random.choice([0, 10_000, 1_000_000, 4_000_000])
    if random.random() < 0.6:
        steps.append(Step(end_us, "calm", 0))
        end_us += random.choice([0, 300_000, 3_000_000])
    return end_us


def _weights(random: Random) -> dict[str, int]:
    """Swarm: each kind of fault is off in some seeds, and wildly weighted in the others."""
    weights = {kind: weight * random.choice([0, 1, 1, 1, 3]) for kind, weight in TRAFFIC.items()}
    weights["schedule"] = TRAFFIC["schedule"]
    weights |= {kind: random.choice([0, 1, 2, 8]) for kind in FAULTS}
    return weights


def _options(random: Random) -> Options:
    small = random.random() < 0.5
    lost = twice = slow = 0.0
    if random.random() < 0.5:
        lost, twice = random.choice([0, 0.01, 0.1]), random.choice([0, 0.05])
        slow = random.choice([0, 0.02, 0.1])
    consumers = tuple(
        (random.choice([1, 2, 8, 64, 256]), random.choice([400, 1_500, 5_000, 5_000, 30_000]))
        for _ in range(random.randint(1, 3))
    )
    return Options(
        hot_rows_total=16 if small else limits.HOT_ROWS_TOTAL,
        log_retain_bytes=random.choice([limits.LOG_RETAIN_BYTES, 2_000]),
        lost=lost, twice=twice, slow=slow,
        lose_answer=random.choice([0, 0, 0.3]),
        watch_us=random.choice([3_000, 3_000, 500_000, 3_000_000]),
        wire=random.random() < 0.15,
        relayed=random.random() < 0.25,
        partitions=random.choice([1, 2, 2, 3]),
        consumers=consumers,
        habits=tuple(draw_habits(random) for _ in consumers),
    )  # fmt: skip


def draw_habits(random: Random) -> Habits:
    """How a consumer treats what it gets: mostly well."""
    if random.random() < 0.4:
        return Habits()

    def share(chances: float, most: float) -> float:
        return random.random() * most if random.random() < chances else 0.0

    return Habits(
        work_us=random.choice([(200, 5_000), (1_000, 300_000), (10_000, 3_000_000)]),
        nack=share(0.5, 0.5), extend=share(0.4, 0.5), forget=share(0.4, 0.3), late=share(0.3, 0.3),
        twice=share(0.3, 0.5),
    )  # fmt: skip

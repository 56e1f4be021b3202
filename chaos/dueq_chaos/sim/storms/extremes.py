"""Swarm weights that make rare things common: in some seeds one or more things are at their end of the scale.

Credit of one message, leases as short as they may be, a disk that is slow beside the network for as long as the storm
lasts, a pipeline that is never empty, leaders that change all the time, acks in the last moment of their leases. The
rest of a storm stays as it is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from dueq_chaos.sim.users.habits import Habits

Consumers = tuple[tuple[int, int], ...]
Timed = tuple[int, str]
"""(µs from the beginning, kind of step)."""


@dataclass
class Stretched:
    """A plan after it was stretched.

    Attributes:
        consumers: (credit, lease in ms) of each.
        habits: of each.
        options: others of the plan's options, by name.
        steps: more of them.
    """

    consumers: Consumers
    habits: tuple[Habits, ...]
    options: dict[str, Any]
    steps: list[Timed]


def stretch(random: Random, consumers: Consumers, habits: tuple[Habits, ...], until_us: int) -> Stretched:
    """Draw what is extreme in one storm: one thing, or a few that meet."""
    found = Stretched(consumers, habits, {}, [])
    ways = list(_WAYS)
    for way in random.sample(ways, random.choice([1, 2, 2, 3])):
        way(random, found, until_us)
    return found


# -------------------------------------------------------------------- consumers


def _little_credit(random: Random, found: Stretched, until_us: int) -> None:
    credit = random.choice([1, 1, 2])
    found.consumers = tuple((credit, lease_ms) for _, lease_ms in found.consumers)


def _short_leases(random: Random, found: Stretched, until_us: int) -> None:
    """As short as commits and a network allow at all, and users who are nearly as slow."""
    lease_ms = random.choice([100, 200, 400])
    found.consumers = tuple((credit, lease_ms) for credit, _ in found.consumers)
    work_us = (1_000, lease_ms * 1000)
    found.habits = tuple(replace(one, work_us=work_us, extend=random.random()) for one in found.habits)


def _last_moment(random: Random, found: Stretched, until_us: int) -> None:
    """Acks in the last 150 ms of leases that are long enough to be gathered."""
    lease_ms = random.choice([1_000, 1_500, 2_500])
    found.consumers = tuple((max(credit, 8), lease_ms) for credit, _ in found.consumers)
    work_us = ((lease_ms - random.choice([150, 400])) * 1000, (lease_ms + random.choice([-20, 50])) * 1000)
    found.habits = tuple(
        Habits(idle_us=(20, 500), work_us=work_us, patient=random.choice([0.5, 1.0])) for _ in found.consumers
    )
    _steady(random, found, until_us)


def _patience(random: Random, found: Stretched, until_us: int) -> None:
    """Nobody waits for his acks."""
    found.habits = tuple(replace(one, patient=random.choice([0.5, 1.0])) for one in found.habits)


# -------------------------------------------------------------------- disks, network, coordinator


def _slow_disks(random: Random, found: Stretched, until_us: int) -> None:
    """One disk, or all, slow for good: many records are on their way at any time."""
    slow = [random.choice([5_000, 40_000, 150_000, 600_000]) for _ in range(3)]
    if random.random() < 0.6:
        slow = [slow[0] if at == random.randrange(3) else random.choice([0, 3_000]) for at in range(3)]
    found.options["disks_us"] = tuple(slow)
    _steady(random, found, until_us)


def _slow_network(random: Random, found: Stretched, until_us: int) -> None:
    found.options["delay_us"] = random.choice([(2_000, 10_000), (200, 40_000)])
    _steady(random, found, until_us)


def _slow_sets(random: Random, found: Stretched, until_us: int) -> None:
    """Compare-and-sets take long, and many of their answers get lost."""
    found.options["set_us"] = random.choice([100_000, 400_000, 1_000_000])
    found.options["lose_answer"] = random.choice([0.3, 0.7])


def _small_memory(random: Random, found: Stretched, until_us: int) -> None:
    """Cold reads, evictions and snapshots of many parts, all the time."""
    found.options |= {"hot_rows_total": 16, "log_retain_bytes": 2_000, "snapshot_part_bytes": 500}
    found.steps += _some(random, until_us, "left behind", 2)


# -------------------------------------------------------------------- what happens


def _steady(random: Random, found: Stretched, until_us: int) -> None:
    """A request or two every few milliseconds."""
    found.steps += _some(random, until_us, "schedule steadily", 4)


def _many_leaders(random: Random, found: Stretched, until_us: int) -> None:
    for kind in random.sample(["overthrow", "restart", "pause", "cut one way"], 2):
        found.steps += _some(random, until_us, kind, 5)
    _steady(random, found, until_us)


def _hurry(random: Random, found: Stretched, until_us: int) -> None:
    """Callers with next to no time, while leaders come and go."""
    found.steps += _some(random, until_us, "impatient schedule", 30)
    found.steps += _some(random, until_us, "restart", 3)
    found.steps += _some(random, until_us, "full disk", 2)


def _long_payloads(random: Random, found: Stretched, until_us: int) -> None:
    found.steps += _some(random, until_us, "schedule long", 12)
    found.steps += _some(random, until_us, random.choice(["restart", "overthrow", "isolate"]), 3)


def _far_away(random: Random, found: Stretched, until_us: int) -> None:
    """Messages for the year after next, which are moved and cancelled like others."""
    found.steps += _some(random, until_us, "schedule very far", 5)
    found.steps += _some(random, until_us, "alter", 12)
    found.steps += _some(random, until_us, "restart", 1)


def _some(random: Random, until_us: int, kind: str, most: int) -> list[Timed]:
    return [(random.randint(0, until_us), kind) for _ in range(random.randint(1, most))]


_WAYS: tuple[Callable[[Random, Stretched, int], None], ...] = (
    _little_credit, _short_leases, _last_moment, _patience, _slow_disks, _slow_network, _slow_sets, _small_memory,
    _many_leaders, _hurry, _long_payloads, _far_away,
)  # fmt: skip

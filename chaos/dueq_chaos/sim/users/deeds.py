"""Which seeds have users of dead letters, passes, windows, versions and pulls, and what these do when.

Such seeds have a topic of any kind. Everything here is drawn from streams of its own.
"""

from __future__ import annotations

from random import Random
from typing import Final

from dueq_chaos.sim.users.often import is_often

DEEDS: Final[dict[str, tuple[str, ...]]] = {
    "death": ("schedule mortal", "schedule mortal", "set endings", "redrive", "discard", "deadly habits"),
    "surgery": ("operate", "operate", "operate and fall"),
    "conditions": ("schedule within windows", "change versions", "change versions"),
    "pulls": ("pull", "pull", "pull by name"),
}
"""The deeds of each of these users; one listed more often is done more often."""
KINDS: Final = frozenset(kind for kinds in DEEDS.values() for kind in kinds)
TOPICS: Final = ("timeline", "priority", "timeline", "fair")
"""Kinds of the topic, by turns."""
_EVERY: Final = 16
_AT: Final = (2, 5)
_OFTEN_AT: Final = (1, 2, 3, 5, 9, 11)
_FROM: Final = 256
"""Of every so many seeds these, but for the first, whose storms find other things; where it is often, more of them."""


def is_among(seed: int) -> bool:
    """Whether the seed has such users."""
    return seed >= _FROM and seed % _EVERY in (_OFTEN_AT if is_often(seed) else _AT)


def topic_kind(seed: int) -> str:
    """Return the kind of the topic of such a seed."""
    return TOPICS[seed // _EVERY % len(TOPICS)]


def draw(seed: int, until_us: int) -> list[tuple[int, str, int]]:
    """Return when something of this is done, what, and the seed of the rest."""
    random = Random(seed * 0x27D4EB2F + 53)
    found: list[tuple[int, str, int]] = []
    for group in random.sample(sorted(DEEDS), random.choice([1, 1, 2, 3])):
        for _ in range(random.randint(5, 16)):
            found.append((random.randint(0, until_us), random.choice(DEEDS[group]), random.getrandbits(32)))
    return found

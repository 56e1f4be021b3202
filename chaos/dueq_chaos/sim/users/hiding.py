"""Storms in which a job is hidden among more messages than memory holds, and is committed while most are on the disk.

The end of its hiding lies behind the end of the hot window then: what is due in between must not be taken for known.
"""

from __future__ import annotations

from random import Random
from typing import Final

HIDE: Final = "hide among many"
HOT_ROWS: Final = 16
"""All that is in memory, of all partitions of a broker."""
ROWS: Final = (20, 40)
"""Of one request; there are several for each partition."""
_FROM: Final = 92_000_000
"""The storms of smaller seeds are as they were before there were such."""
_SHARE: Final = 0.25


def has_some(seed: int) -> bool:
    """Whether a seed's storm has such jobs; from a stream of its own."""
    return seed >= _FROM and Random(seed * 0x27D4EB2F + 137).random() < _SHARE


def draw(seed: int, until_us: int) -> list[tuple[int, str, int]]:
    """Return when such a job is loaded, what, and the seed of the rest."""
    if not has_some(seed):
        return []
    random = Random(seed * 0x27D4EB2F + 139)
    return [
        (random.randint(0, until_us), HIDE, random.getrandbits(32)) for _ in range(random.choice([1, 1, 2]))
    ]

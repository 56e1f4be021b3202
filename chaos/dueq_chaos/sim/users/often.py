"""Seeds whose storms have users of keys, passes, pulls and dead letters, and turns of groups, oftener than others.

The storms of all other seeds stay as they are: those that have found something find it again.
"""

from __future__ import annotations

from typing import Final

EVERYTHING_FROM: Final = 94_000_000
"""Storms of smaller seeds lack some of the users: they are as they were before there were such."""
_SEEDS: Final = range(88_000_000, 120_000_000)


def is_often(seed: int) -> bool:
    """Whether the seed is one of these."""
    return seed in _SEEDS

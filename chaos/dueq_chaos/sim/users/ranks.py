"""How the users of a priority topic rank their messages: few ranks or many, in clusters, or hardly ever."""

from __future__ import annotations

from random import Random
from typing import Final

from dueq.limits import RANK_MAX

_STYLES: Final = ("few", "many", "clusters", "one in ten", "none")


class Ranks:
    """Draws ranks in the style of one storm, from a stream of their own: all else stays as it would be without.

    Args:
        seed: of the storm.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed * 0x9E3779B1 + 29)
        self.style = self._random.choice(_STYLES)
        self._some = [self._random.randint(0, RANK_MAX) for _ in range(self._random.randint(2, 5))]

    def draw(self, rows: int) -> list[int] | None:
        """Return a rank for each row; None: the request has none."""
        if self.style == "none" or self._random.random() < 0.1:
            return None
        return self.others(rows)

    def others(self, rows: int) -> list[int]:
        """Return a rank for each row, as of messages whose rank changes."""
        return [self._one() for _ in range(rows)]

    def chance(self, share: float) -> bool:
        """Whether users do something that is done in so many cases."""
        return self._random.random() < share

    def soon_us(self) -> int:
        """Return after how long a user thinks again about a message."""
        return self._random.choice([0, self._random.randint(0, 6_000), self._random.randint(0, 900_000)])

    def sample(self, rows: int) -> list[int]:
        """Return some of so many places."""
        return self._random.sample(range(rows), self._random.randint(1, rows))

    def _one(self) -> int:
        random = self._random
        match self.style:
            case "few":
                return random.choice([0, *self._some])
            case "clusters":
                return min(random.choice(self._some) + random.randint(0, 3), RANK_MAX)
            case "one in ten":
                return 0 if random.random() < 0.1 else 100
            case _:
                return random.choice([0, RANK_MAX, random.randint(0, RANK_MAX)])

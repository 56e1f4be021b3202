"""How large a mesh is, and what its topics are like: drawn for one seed in four, three of everything in the others."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

_EVERY, _AT = 8, (6, 7)
"""Of every so many seeds these have a mesh of their own."""


@dataclass(frozen=True)
class Shape:
    """A topic.

    Attributes:
        partitions: how many.
        replicas: at most as many as there are brokers.
        min_isr: at most as many as replicas.
    """

    partitions: int = 2
    replicas: int = 3
    min_isr: int = 2


@dataclass(frozen=True)
class Topology:
    """A mesh.

    Attributes:
        brokers: how many.
        topics: all that are written to and consumed; jobs are loaded into the first one.
    """

    brokers: int = 3
    topics: tuple[Shape, ...] = (Shape(),)

    @property
    def alone(self) -> bool:
        """Whether a broker that is left alone may serve: then its own clock is the mesh's."""
        return self.brokers < 3 or any(shape.min_isr == 1 for shape in self.topics)


def is_drawn(seed: int) -> bool:
    """Whether the seed has a mesh of its own."""
    return seed % _EVERY in _AT


def draw_topology(seed: int, partitions: int) -> Topology:
    """Draw a mesh.

    Args:
        seed: decides everything.
        partitions: of the only topic, where the mesh has three of everything.
    """
    if not is_drawn(seed):
        return Topology(topics=(Shape(partitions),))
    random = Random(seed * 0x9E3779B1 + 21)
    brokers = random.choice([1, 2, 2, 3, 4, 5, 5, 7])
    shapes = [_shape(random, brokers) for _ in range(random.choice([1, 1, 2, 3]))]
    return Topology(brokers, tuple(shapes))


def _shape(random: Random, brokers: int) -> Shape:
    replicas = random.randint(1, min(brokers, 5))
    return Shape(random.choice([1, 2, 3]), replicas, random.randint(1, replicas))

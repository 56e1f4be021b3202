"""How large a mesh is, and what its topics are like: drawn for one seed in four, three of everything in the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from dueq_chaos.sim.users import deeds
from dueq_chaos.sim.users.often import is_often
from dueq_codecs.topic_settings import AS_CREATED, TopicSettings

_EVERY, _AT = 8, (6, 7)
"""Of every so many seeds these have a mesh of their own."""
_RANKED_EVERY, _RANKED_AT, _RANKED_AT_OWN_MESH = 16, 9, 15
"""Of every so many seeds the topic of one is a priority topic, and some topics of another with a mesh of its own."""
_KEYED_EVERY, _KEYED_AT, _OFTEN_KEYED_AT = 32, (19, 23), (1, 11, 18, 19, 23, 25, 26)
"""Of every so many seeds the topics of these have unique keys; one of them has a mesh of its own."""
_FAIR_EVERY, _FAIR_AT, _OFTEN_FAIR_AT = 64, (35,), (3, 21, 35, 38, 53)
"""Of every so many seeds the topic of these is a fair topic."""


@dataclass(frozen=True)
class Shape:
    """A topic.

    Attributes:
        partitions: how many.
        replicas: at most as many as there are brokers.
        min_isr: at most as many as replicas.
        kind: of the topic.
        keys, remember_ms: whether its keys are unique, and for how long they stay taken.
    """

    partitions: int = 2
    replicas: int = 3
    min_isr: int = 2
    kind: str = "timeline"
    keys: str = "free"
    remember_ms: int = 0

    @property
    def settings(self) -> TopicSettings:
        """With which the topic is created."""
        if self.keys == "free":
            return AS_CREATED
        return AS_CREATED.begun({"keys": self.keys, "remember_ms": self.remember_ms}, "00" * 16)


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
    """Draw a mesh, whose topics may have unique keys; from a stream of its own (see `_drawn`)."""
    found = _drawn(seed, partitions)
    if seed % _KEYED_EVERY not in (_OFTEN_KEYED_AT if is_often(seed) else _KEYED_AT):
        return found
    remember_ms = Random(seed * 0x9E3779B1 + 41).choice([0, 1_500, 60_000])
    keyed = (replace(shape, keys="unique", remember_ms=remember_ms) for shape in found.topics)
    return replace(found, topics=tuple(keyed))


def _drawn(seed: int, partitions: int) -> Topology:
    """Draw a mesh.

    Args:
        seed: decides everything.
        partitions: of the only topic, where the mesh has three of everything.
    """
    if not is_drawn(seed):
        kind = "priority" if seed % _RANKED_EVERY == _RANKED_AT else "timeline"
        fair_at = _OFTEN_FAIR_AT if is_often(seed) else _FAIR_AT
        kind = "fair" if seed % _FAIR_EVERY in fair_at else kind
        kind = deeds.topic_kind(seed) if deeds.is_among(seed) else kind
        return Topology(topics=(Shape(partitions, kind=kind),))
    random = Random(seed * 0x9E3779B1 + 21)
    brokers = random.choice([1, 2, 2, 3, 4, 5, 5, 7])
    shapes = [_shape(random, brokers) for _ in range(random.choice([1, 1, 2, 3]))]
    if seed % _RANKED_EVERY == _RANKED_AT_OWN_MESH:
        kinds = Random(seed * 0x9E3779B1 + 31)
        shapes = [replace(shape, kind=kinds.choice(["timeline", "priority"])) for shape in shapes]
    return Topology(brokers, tuple(shapes))


def _shape(random: Random, brokers: int) -> Shape:
    replicas = random.randint(1, min(brokers, 5))
    return Shape(random.choice([1, 2, 3]), replicas, random.randint(1, replicas))

"""Rules for the bytes that go from one process to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

CLIENTS = "clients"
"""Producers and consumers, all together."""
ZOOKEEPER = "zookeeper"

Way = tuple[str, str]
"""(from, to): broker ids, `CLIENTS`, `ZOOKEEPER`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The treatment of the bytes on one way.

    Attributes:
        cut: nothing passes, nothing is refused: as when packets vanish. Bytes that were sent meanwhile arrive after
            the end, as by TCP's retransmissions.
        delay_ms: every byte is that much later.
        jitter_ms: and up to that much more, in order all the same.
        loss: the share of segments (0–1) that are lost. Later segments wait until a lost one was repeated
            (200 ms, doubled while that is lost too: Linux's least retransmission time-out).
    """

    cut: bool = False
    delay_ms: float = 0
    jitter_ms: float = 0
    loss: float = 0

    def merged(self, other: Rule) -> Rule:
        """The worse of both, point by point."""
        return Rule(
            self.cut or other.cut,
            max(self.delay_ms, other.delay_ms),
            max(self.jitter_ms, other.jitter_ms),
            max(self.loss, other.loss),
        )

    def as_json(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """The opposite of `as_json`."""
        return cls(**found)


FREE = Rule()


def ways(some: Iterable[str], others: Iterable[str], both: bool = True) -> list[Way]:
    """Return the ways from `some` to `others`, and back if `both`."""
    there = [(one, other) for one in some for other in others if one != other]
    return there + [(other, one) for one, other in there] if both else there


def merge(tables: Iterable[Mapping[Way, Rule]]) -> dict[Way, Rule]:
    """Put the rules of several faults together."""
    result: dict[Way, Rule] = {}
    for table in tables:
        for way, rule in table.items():
            result[way] = result.get(way, FREE).merged(rule)
    return result

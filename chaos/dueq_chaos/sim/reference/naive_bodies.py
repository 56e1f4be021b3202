"""Shared bodies in the reference: which of them a partition keeps, and which become garbage."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dueq.limits import BODY_GRACE_MS
from dueq_codecs.records import Outcome, Record, RecordKind


@dataclass(slots=True)
class NaiveBody:
    """One body, as this partition knows it."""

    number: int
    size: int
    crc: int
    until: int
    """Age of the partition at which its grace ends."""


class NaiveBodies:
    """All bodies of a partition.

    Attributes:
        by_name: by their SHA-256.
    """

    def __init__(self) -> None:
        self.by_name: dict[bytes, NaiveBody] = {}

    def forget(self, age: int, named: Collection[int]) -> list[int]:
        """Forget what no message names and whose grace is over; returns their numbers."""
        gone = [name for name, body in self.by_name.items() if body.number not in named and body.until <= age]
        return [self.by_name.pop(name).number for name in gone]

    def act(self, record: Record, age: int) -> tuple[Outcome, bool]:
        """Apply a BODY; returns its outcome, and whether what it brings is garbage."""
        known = self.by_name.get(record.shared)
        brings = len(record.size) > 0
        if known is None:
            if not brings:
                return Outcome.NOT_FOUND, False
            self.by_name[record.shared] = NaiveBody(
                record.sequence, record.shared_size, int(record.crc[0]), 0
            )
        grace = int(record.amount_ms[0]) if len(record.amount_ms) else BODY_GRACE_MS
        self.by_name[record.shared].until = age + min(grace, BODY_GRACE_MS)
        return Outcome.DONE, brings and known is not None

    def refuses(self, record: Record) -> bool:
        """Whether a record names a body that is not kept."""
        if record.kind == RecordKind.BODY or not record.shared:
            return False
        known = self.by_name.get(record.shared)
        return known is None or known.size != record.shared_size

    def use(self, record: Record, age: int) -> int:
        """A record or row takes effect that names a body; returns its number."""
        known = self.by_name[record.shared]
        known.until = max(known.until, age + BODY_GRACE_MS)
        return known.number

"""The groups of a partition in the reference: their numbers and their settings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from dueq_chaos.sim.reference.naive_entry import NaiveEntry
from dueq_codecs.records import Outcome, Record

_USUAL: Final = {"weight": 1, "max_unacked": 0, "paused": False, "rate": 0, "burst": 0}


class NaiveGroups:
    """The groups of one partition.

    Attributes:
        numbers: the number of each group that has messages or settings, by name.
        given: numbers that were given out.
        settings: what is set for groups, by name.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.given = 0
        self.settings: dict[str, dict[str, Any]] = {}

    @property
    def names(self) -> dict[int, str]:
        """The name of each group by its number."""
        return {number: name for name, number in self.numbers.items()}

    def forget(self, entries: Iterable[NaiveEntry]) -> None:
        """Forget groups that have neither settings nor a message."""
        held = {entry.group for entry in entries} if self.numbers else set()
        self.numbers = {
            name: number for name, number in self.numbers.items() if number in held or name in self.settings
        }

    def number(self, name: str) -> None:
        """Give a group a number, if it has none; no name is no group."""
        if name and name not in self.numbers:
            self.given += 1
            self.numbers[name] = self.given

    def set(self, record: Record) -> Outcome:
        """Apply a GROUP record."""
        self.number(record.name)
        settings = self.settings.pop(record.name, {}) | json.loads(record.document)
        if any(_USUAL[name] != value for name, value in settings.items()):
            self.settings[record.name] = settings
        return Outcome.DONE

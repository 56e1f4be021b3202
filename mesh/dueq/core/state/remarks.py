"""Why messages were given back: the last reason of each, on its way to the disk.

A reason comes with the record that gives the message back. Its text is in memory until a checkpoint has written it;
from then on it lies on the disk beside the message, under the message's key. The entry's column `remark` names the row
of the record that brought it. The text goes when its message does.
"""

from __future__ import annotations

from typing import Final

from dueq.core.ports.entry import Entries, is_full, keys_of

BYTES_PER_DIRTY: Final = 1024
"""Bytes of texts that weigh as much as one dirty row."""

Remark = tuple[int, str | None]
"""A message's key and its text; None: it has none any more."""


class Remarks:
    """The texts that the disk does not have yet, and those that it need not have any more.

    Attributes:
        size: bytes of the texts that no checkpoint has taken yet, about.
    """

    def __init__(self) -> None:
        self._new: dict[int, str | None] = {}
        self._saving: dict[int, str | None] = {}
        self.size = 0

    def note(self, key: int, text: str) -> None:
        """Note the last reason of a message."""
        self._new[key] = text
        self.size += len(text)

    def forget(self, entries: Entries) -> None:
        """These messages end."""
        if is_full(entries):
            for key in keys_of(entries)[entries["remark"] != 0].tolist():
                self._new[key] = None

    def get(self, key: int) -> str | None:
        """Return the text of a message where the disk may not have it yet; None: the disk has it, if there is one."""
        return self._new.get(key) or self._saving.get(key)

    def take(self) -> list[Remark]:
        """Return what a checkpoint has to write."""
        taken, self._new, self.size = self._new, {}, 0
        self._saving = taken
        return list(taken.items())

    def saved(self) -> None:
        """The checkpoint that took them is durable."""
        self._saving = {}

    def export(self) -> dict[int, str | None]:
        """Return all that the disk may not have yet."""
        return self._saving | self._new

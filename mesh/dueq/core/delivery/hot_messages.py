"""The partition's state, as far as a queue of waiting messages reads it."""

from __future__ import annotations

from typing import Protocol

from dueq.core.ports.entry import Entries
from dueq.core.state.group_table import GroupTable
from dueq_codecs.records import U64


class HotMessages(Protocol):
    """The applied state of a led partition, as far as a queue reads it."""

    def rows(self, keys: U64) -> Entries:
        """Return the entry of each key, in order; state ABSENT where memory holds none."""
        ...

    def end_of(self, of: int) -> tuple[int, int] | None:
        """Return the position behind which more of a class may be that is only on disk; None: there is no more."""
        ...

    def unknown_from(self, until_ms: int) -> int | None:
        """Return the first class of which something that waits until then may be only on disk; None: there is none."""
        ...

    def unknown_in(self, first: int, behind: int, until_ms: int) -> int | None:
        """Return the same of the classes from `first` on, up to the one before `behind`."""
        ...

    def unknown_at(self, first: int, behind: int) -> int | None:
        """Return since when something of these classes may be ready that is only on disk; None: nothing is there."""
        ...

    @property
    def unknown_count(self) -> int:
        """How many classes there are of which more may be that is only on disk."""
        ...

    @property
    def by_turns(self) -> bool:
        """Whether reads follow the order of turns: a group that waits for the disk keeps its turn."""
        ...

    @property
    def groups(self) -> GroupTable:
        """The groups of messages, for reading only."""
        ...

"""The number of the format that a store is written in: the one that this build writes, and those it can upgrade.

The number covers keys and the layouts of values. It stands in `timeline/`, under a key that no format changes; so do
the other rows of uid 0, which say whose store it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from dueq.errors import UnknownVersion
from dueq.storage.ordered import layout
from dueq.storage.ordered.engine import Operation, Reader

FORMAT: Final = 1

Change = tuple[int, bytes, bytes | None]
"""(database: 0 timeline, 1 payload; key; value, None: the row goes)."""


@dataclass(frozen=True, slots=True)
class Step:
    """From one format to the next.

    Attributes:
        before: the format that it reads.
        changes: yields what is to change, given `timeline/` and `payload/` as they were before the step. Rows of uid 0
            stay as they are.
    """

    before: int
    changes: Callable[[Reader, Reader], Iterable[Change]]


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats that a build can open.

    Attributes:
        newest: the format that it writes.
        steps: without gaps, the last of them to `newest`.
    """

    newest: int = FORMAT
    steps: tuple[Step, ...] = ()

    @property
    def oldest(self) -> int:
        """The oldest format that can be brought to `newest`."""
        return self.newest - len(self.steps)


FORMATS: Final = Formats()
"""Of this build. Nothing came before format 1."""


def format_row(number: int) -> Operation:
    """Return the row that says which format a store has."""
    return layout.STORE_FORMAT, str(number).encode()


def check_format(timeline: Reader, formats: Formats) -> int:
    """Return the format of a store that is not empty.

    Raises:
        UnknownVersion: this build cannot open it.
    """
    found = timeline.get(layout.STORE_FORMAT) or b"?"
    number = int(found) if found.isdigit() else 0
    known = f"{formats.oldest} to {formats.newest}" if formats.steps else f"{formats.newest}"
    if number > formats.newest:
        raise UnknownVersion(
            f"the store has format {number}; this build knows {known}. A newer version of dueq wrote it: run that"
            " version here again, or begin with an empty data folder, which the other replicas fill"
        )
    if number < formats.oldest:
        raise UnknownVersion(
            f"the store has format {found.decode(errors='replace')}; this build knows {known}. Start a version in"
            " between here first: it brings the store to a format that this one knows"
        )
    return number

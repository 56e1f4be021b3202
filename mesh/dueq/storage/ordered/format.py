"""The number of the format that a store is written in: where it is written, and where it is judged."""

from __future__ import annotations

from typing import Final

from dueq.errors import UnknownVersion
from dueq.storage.ordered import layout
from dueq.storage.ordered.engine import Operation, Reader

FORMAT: Final = 1


def format_row() -> Operation:
    """Return the row that a new store begins with."""
    return layout.STORE_FORMAT, str(FORMAT).encode()


def check_format(timeline: Reader) -> None:
    """See whether this build can read the store.

    Raises:
        UnknownVersion: it is of another format.
    """
    found = timeline.get(layout.STORE_FORMAT) or b"?"
    if found != str(FORMAT).encode():
        raise UnknownVersion(f"the store has format {found.decode()!r}; this build knows {FORMAT}")

"""Side tables on the disk: small rows of a partition's state that are not messages.

Only the core knows the meaning of each table and of its rows (`core/state/side_tables.py`). The store keeps them
under the partition's uid and the table's tag, without looking inside.
"""

from __future__ import annotations

from typing import NamedTuple


class TableRow(NamedTuple):
    """One row of a side table."""

    key: bytes
    """The table's own packing."""
    value: bytes | None
    """The table's own packing; None deletes the row."""


Tables = dict[bytes, list[TableRow]]
"""Rows by tag: one lower-case letter that no other table has and that the store does not use itself."""

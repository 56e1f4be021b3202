"""The look of every table of the command line."""

from __future__ import annotations

import sys
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 100_000
"""No line is longer."""


def cleaned(text: str) -> str:
    """Return a text as it can be shown: what commands a terminal becomes blanks.

    Names, keys, headers and payloads are of others, who may mean no good.
    """
    return "".join(character if character.isprintable() or character == "\n" else " " for character in text)


class PlainTable(Table):
    """A table whose cells mean what they say: no markup, no names of emojis, nothing that commands a terminal."""

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
        """Add a row of texts."""
        super().add_row(*map(_plain, cells), **more)


def _plain(cell: RenderableType | None) -> RenderableType | None:
    if isinstance(cell, Text):
        cell.plain = cleaned(cell.plain)
    return Text(cleaned(cell)) if isinstance(cell, str) else cell


def new_table(title: str, *columns: str) -> Table:
    """A table; a column whose name begins with > is right-aligned."""
    found = PlainTable(
        title=Text(title, style="bold"),
        title_justify="left",
        header_style="dim",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for column in columns:
        justify = "right" if column.startswith(">") else "left"
        found.add_column(Text(cleaned(column.lstrip(">"))), justify=justify, no_wrap=True)  # type: ignore[arg-type]
    return found


def new_console() -> Console:
    """Return where a command prints: lines of a terminal are as wide as it, and those of a pipe are never cut."""
    return Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)


def print_table(table: Table, **widths: int) -> None:
    """Print a table. A narrow terminal cuts columns, but not below these widths.

    Args:
        table: the table.
        widths: of the columns that are cut last, by their heads with _ for a blank.
    """
    for column in table.columns:
        width = widths.get(str(column.header).replace(" ", "_"))
        if width is not None:
            column.min_width = width
    new_console().print(table)

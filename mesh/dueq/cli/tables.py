"""The look of every table of the command line."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table

_PIPE_WIDTH = 100_000
"""No line is longer."""


def new_table(title: str, *columns: str) -> Table:
    """A table; a column whose name begins with > is right-aligned."""
    found = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for column in columns:
        justify = "right" if column.startswith(">") else "left"
        found.add_column(column.lstrip(">"), justify=justify, no_wrap=True)  # type: ignore[arg-type]
    return found


def new_console() -> Console:
    """Return where a command prints: lines of a terminal are as wide as it, and those of a pipe are never cut."""
    return Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)


def print_table(shown: Table, **widths: int) -> None:
    """Print a table. A narrow terminal cuts columns, but not below these widths.

    Args:
        shown: the table.
        widths: of the columns that are cut last, by their heads with _ for a blank.
    """
    for column in shown.columns:
        width = widths.get(str(column.header).replace(" ", "_"))
        if width is not None:
            column.min_width = width
    new_console().print(shown)

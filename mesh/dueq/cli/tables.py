"""The look of every table of the command line."""

from __future__ import annotations

from rich import box
from rich.table import Table


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

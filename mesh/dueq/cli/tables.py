"""The look of every table of the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 100_000
"""No line is longer."""
_TEXT: Final = 8
_LEAST: Final = 4
"""A column of texts becomes as narrow as this before, and after, heads of numbers are broken."""
_BETWEEN: Final = 2
"""How much wider than its cells a table is, for each of its columns."""


def cleaned(text: str) -> str:
    """Return a text as it can be shown: what commands a terminal becomes blanks.

    Names, keys, headers and payloads are of others, who may mean no good.
    """
    return "".join(character if character.isprintable() or character == "\n" else " " for character in text)


class PlainTable(Table):
    """A table whose cells mean what they say: no markup, no names of emojis, nothing that commands a terminal.

    Where it is too wide, texts are broken into several lines. Numbers never are, and are never cut: rather than that,
    its lines are wider than the terminal.
    """

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
        """Add a row of texts."""
        super().add_row(*map(_plain, cells), **more)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as there is room, but not narrower than its numbers."""
        for column in self.columns:
            column.width = None
        wide = options.update_width(_PIPE_WIDTH)
        widths = [_width((column.header, *column.cells), console, wide) for column in self.columns]
        between = _BETWEEN * len(widths)
        fitted = _fitted(widths, self._floors(widths, console, wide), options.max_width - between)
        for column, width in zip(self.columns, fitted, strict=True):
            column.width = width
        needed = sum(fitted) + between
        yield from super().__rich_console__(console, options.update_width(max(options.max_width, needed)))

    def _floors(self, widths: list[int], console: Console, wide: ConsoleOptions) -> list[list[int]]:
        """How narrow each column may become: what is tried first, what next, and so on."""
        numbers = [
            _width(column.cells, console, wide) if column.justify == "right" else 0 for column in self.columns
        ]
        texts = [column.min_width or (_LEAST if column.no_wrap else _TEXT) for column in self.columns]
        heads = [max(number, _LEAST) for number in numbers]
        tried = (
            (widths, texts),
            (heads, texts),
            (heads, [_LEAST] * len(texts)),
            (numbers, [_LEAST] * len(texts)),
        )
        return [
            [
                figures if number else text
                for number, figures, text in zip(numbers, of_numbers, of_texts, strict=True)
            ]
            for of_numbers, of_texts in tried
        ]


def _width(cells: Iterable[RenderableType], console: Console, options: ConsoleOptions) -> int:
    return max((Measurement.get(console, options, cell).maximum for cell in cells), default=1)


def _fitted(widths: list[int], floors: list[list[int]], room: int) -> list[int]:
    """Make the widest columns narrower until all have room, or are as narrow as they may be."""
    fitted = widths
    for least in floors:
        if sum(fitted) <= room:
            break
        for most in range(min(max(fitted, default=0), max(room, 0)), -1, -1):
            fitted = [
                max(min(width, most), min(width, floor)) for width, floor in zip(fitted, least, strict=True)
            ]
            if sum(fitted) <= room:
                break
    return fitted


def _plain(cell: RenderableType | None) -> RenderableType | None:
    if isinstance(cell, Text):
        cell.plain = cleaned(cell.plain)
    return Text(cleaned(cell)) if isinstance(cell, str) else cell


def new_table(title: str, *columns: str, heads: bool = True) -> Table:
    """A table.

    Args:
        title: above it.
        columns: their heads. > before one: numbers, right-aligned. | before one: texts that are cut, not broken.
        heads: show the heads.
    """
    found = PlainTable(
        title=Text(title, style="bold"),
        title_justify="left",
        header_style="dim",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        show_header=heads,
    )
    for column in columns:
        found.add_column(
            Text(cleaned(column.lstrip(">|"))),
            justify="right" if column.startswith(">") else "left",
            no_wrap=column.startswith("|"),
            overflow="ellipsis" if column.startswith("|") else "fold",
        )
    return found


def new_console() -> Console:
    """Return where a command prints: lines of a terminal are as wide as it, and those of a pipe are never cut."""
    return Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)


def print_table(table: Table, console: Console | None = None, /, **widths: int) -> None:
    """Print a table. A narrow terminal breaks texts, but does so last in columns that would get below these widths.

    Args:
        table: the table.
        console: where to print. Default: a new one.
        widths: of the columns that are broken last, by their heads with _ for a blank.
    """
    for column in table.columns:
        width = widths.get(str(column.header).replace(" ", "_"))
        if width is not None:
            column.min_width = width
    (console or new_console()).print(table, crop=False)

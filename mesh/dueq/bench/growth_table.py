"""How costs grow, on a terminal of 100 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from dueq.bench.figures import Figure
from dueq.bench.growth import Series
from dueq.bench.numbers import number

_STEEP = 1.15
"""From this order on a cost grows faster than the size, beyond what noise explains."""


def growth_tables(series: Sequence[Series], figures: Mapping[str, Figure]) -> list[Table]:
    """One table per measurement: a line per cost, a column per size.

    Args:
        series: of the run.
        figures: all of the run by name, for ratios to the bare ones.
    """
    together: dict[str, list[Series]] = {}
    for one in series:
        together.setdefault(one.name.partition("/")[0], []).append(one)
    return [_table(name, part, figures) for name, part in together.items()]


def _table(name: str, series: Sequence[Series], figures: Mapping[str, Figure]) -> Table:
    table = Table(title=name, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("cost", max_width=38)
    sizes = sorted({figure.row.size for one in series for figure in one.figures})
    for size in sizes:
        table.add_column(f"{size:,}", justify="right", no_wrap=True)
    table.add_column("order", justify="right", no_wrap=True)
    for one in series:
        by_size = {figure.row.size: figure for figure in one.figures}
        cells = [_cell(by_size[size], figures) if size in by_size else "" for size in sizes]
        table.add_row(escape(f"{one.row.what}, {one.row.unit}"), *cells, _order(one))
    return table


def _cell(figure: Figure, figures: Mapping[str, Figure]) -> str:
    """The median, how far the runs are from it at most, and the ratio to the bare figure below."""
    text = number(figure.median)
    if len(figure.runs) > 1 and figure.median:
        off = max(abs(run - figure.median) for run in figure.runs) / abs(figure.median)
        text += f" ±{off:.0%}"
    ratio = figure.ratio(figures)
    if ratio is not None:
        text += f"\n[dim]{number(ratio)}× bare[/]"
    if figure.met(figures) is False:
        text = f"[yellow]{text}[/]"
    return text


def _order(series: Series) -> str:
    order = series.order
    if order is None:
        return ""
    text = f"{order:.2f}"
    return f"[bold red]{text}[/]" if order > _STEEP and not series.row.better_high else text

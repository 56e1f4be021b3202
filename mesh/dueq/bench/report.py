"""The table and the JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dueq.bench.figures import Figure, Target
from dueq.bench.growth import series_of
from dueq.bench.growth_table import growth_tables
from dueq.bench.machine import Machine
from dueq.bench.numbers import number

_METHOD = (
    "Producers and consumers are processes of their own, so that no client's GIL is measured; brokers, ZooKeeper "
    "and all of them share this machine. Medians of all runs; every acknowledgement is synced on every replica."
)
_GROWTH = (
    "order: the exponent of growth between the two largest sizes; 1 as fast as the size, 0 not at all. "
    "±: the run that is farthest from the median."
)

_STOLEN_MAX = 0.05
"""If the host takes away more than this share, the report says so."""


def target_text(target: Target | None) -> str:
    """A target in signs: `≥ 100,000, ≥ 0.5 bare`."""
    if target is None:
        return ""
    parts = []
    if target.at_least is not None:
        parts.append(f"≥ {number(target.at_least)}")
    if target.at_most is not None:
        parts.append(f"≤ {number(target.at_most)}" if target.at_most else "none")
    if target.bare_share is not None:
        parts.append(f"≥ {number(target.bare_share)} bare")
    return ", ".join(parts)


@dataclass(frozen=True)
class Report:
    """One run of the benchmark.

    Attributes:
        machine: what it ran on.
        figures: in the order of the report.
        quick: whether it was the short run.
        seconds: how long it took.
        interrupted: whether it was ended before its end.
        stolen: by measurement, the share of the processor time it wanted that the host gave to other machines.
    """

    machine: Machine
    figures: Sequence[Figure]
    quick: bool
    seconds: float
    interrupted: bool = False
    stolen: Mapping[str, float] = field(default_factory=dict)

    @property
    def by_name(self) -> Mapping[str, Figure]:
        """The figures by their rows' names."""
        return {figure.row.name: figure for figure in self.figures}

    @property
    def good(self) -> bool:
        """Whether everything was measured. A target that is missed is a result, not a failure."""
        return not self.interrupted and not any(figure.error for figure in self.figures)

    def document(self) -> dict[str, Any]:
        """The whole report, fit for JSON."""
        figures = self.by_name
        return {
            "machine": self.machine.document(),
            "quick": self.quick,
            "seconds": round(self.seconds, 1),
            "interrupted": self.interrupted,
            "stolen": {name: round(share, 3) for name, share in self.stolen.items()},
            "figures": [figure.document(figures) for figure in self.figures],
        }

    def print(self, console: Console) -> None:
        """Write header and table."""
        for line in self.machine.lines():
            console.print(line, highlight=False, markup=False)
        console.print(_METHOD, highlight=False, markup=False)
        if self.quick:
            console.print("A quick run: fewer messages and runs than the figures ask for.", highlight=False)
        if any(not figure.row.size for figure in self.figures):
            console.print(self.table())
        tables = growth_tables(series_of(self.figures), self.by_name)
        for table in tables:
            console.print(table)
        if tables:
            console.print(_GROWTH, highlight=False, markup=False)
        robbed = [name for name, share in self.stolen.items() if share > _STOLEN_MAX]
        if robbed:
            shares = ", ".join(f"{name} {self.stolen[name]:.0%}" for name in robbed)
            console.print(
                f"[yellow]NOTE: the host kept back processor time (of what was wanted: {shares}); these figures are "
                "worse than this machine's own.[/]", highlight=False,
            )  # fmt: skip
        failed = [figure for figure in self.figures if figure.error]
        for figure in failed:
            console.print(
                f"[red]{escape(figure.row.name)} failed:[/] {escape(figure.error)}", highlight=False
            )
        if self.interrupted:
            console.print("[red]interrupted: the report is not whole[/]")

    def table(self) -> Table:
        """One line per figure; those of series have tables of their own."""
        table = Table(caption=f"{self.seconds:.0f} s", caption_justify="left")
        for name in ("figure", "what"):
            table.add_column(name)
        for name in ("median", "min – max", "target", "", "× bare"):
            table.add_column(name, justify="right", no_wrap=True)
        figures = self.by_name
        group = ""
        for figure in self.figures:
            if figure.row.size:
                continue
            begun = figure.row.name.partition("/")[0]
            if group and begun != group:
                table.add_section()
            group = begun
            table.add_row(*_cells(figure, figures))
        return table


def _cells(figure: Figure, figures: Mapping[str, Figure]) -> list[str]:
    row = figure.row
    target = target_text(row.target)
    if figure.error:
        return [escape(row.name), escape(row.what), "[red]FAILED[/]", "", target, "", ""]
    met, ratio = figure.met(figures), figure.ratio(figures)
    spread = f"{number(min(figure.runs))} – {number(max(figure.runs))}" if len(figure.runs) > 1 else ""
    mark = "" if met is None else "[green]met[/]" if met else "[yellow]missed[/]"
    return [
        escape(row.name), escape(row.what), f"{number(figure.median)} {row.unit}".rstrip(), spread, target, mark,
        "" if ratio is None else number(ratio),
    ]  # fmt: skip

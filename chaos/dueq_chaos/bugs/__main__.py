"""`python -m dueq_chaos.bugs`: plant every bug, and show how soon the simulator finds it."""

from __future__ import annotations

import sys

import click
from rich.console import Console
from rich.table import Table

from dueq_chaos.bugs import BUGS
from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.finding import Search, search, seeds_of


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BUGS)), metavar="[BUG]...")
@click.option("--list", "only_list", is_flag=True, help="Say what the bugs are; run nothing.")
@click.option(
    "--unhinted", is_flag=True, help="Begin at seed 0, without the seeds that are known to find a bug."
)
@click.option(
    "--seeds", type=click.IntRange(1), help="How many seeds to try for each bug, instead of its own bound."
)
def main(names: tuple[str, ...], only_list: bool, unhinted: bool, seeds: int | None) -> None:
    """Plant bugs (all of them by default) and run storms until each is found.

    The exit status is 1 if one was not found within its bound.
    """
    console = Console()
    bugs = [BUGS[name] for name in names] or list(BUGS.values())
    if only_list:
        console.print(_listed(bugs))
        return
    searches = []
    for bug in bugs:
        wanted = range(seeds) if seeds else seeds_of(bug, hinted=not unhinted)
        with console.status(f"{bug.name} …"):
            searches.append(search(bug, wanted))
    console.print(_found(searches))
    sys.exit(1 if any(found.outcome is None for found in searches) else 0)


def _listed(bugs: list[Bug]) -> Table:
    table = Table(title=f"{len(bugs)} planted bugs", show_lines=True)
    for column in ("bug", "what it does", "resembles", "seeds"):
        table.add_column(column)
    for bug in bugs:
        table.add_row(bug.name, bug.does, bug.resembles, str(bug.seeds))
    return table


def _found(searches: list[Search]) -> Table:
    found = [done for done in searches if done.outcome is not None]
    table = Table(title=f"{len(found)} of {len(searches)} planted bugs found", show_lines=True)
    for column in ("bug", "resembles", "found at seed", "runs", "seconds", "verdict"):
        table.add_column(
            column, justify="right" if column in ("found at seed", "runs", "seconds") else "left"
        )
    for done in searches:
        if done.outcome is not None:
            seed, verdict = str(done.outcome.seed), done.outcome.verdicts[0][:160]
        else:
            seed, verdict = "[red]none", ""
        table.add_row(done.bug.name, done.bug.resembles, seed, str(done.runs), f"{done.seconds:.1f}", verdict)
    return table


if __name__ == "__main__":
    main()

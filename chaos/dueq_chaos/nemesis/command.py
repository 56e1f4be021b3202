"""`dueq-chaos run`."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from dueq_chaos.nemesis.outcome import Outcome
from dueq_chaos.nemesis.report import write_report
from dueq_chaos.nemesis.run import RANDOM, Run, Settings, impossible_here
from dueq_chaos.nemesis.scenarios import RANDOM_KINDS, SCENARIOS
from dueq_chaos.nemesis.screen import Screen

_SEED_BITS = 32


@click.command()
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@click.option("--list", "listing", is_flag=True, help="List scenarios, and what is not possible here.")
@click.option(
    "--duration",
    type=click.FloatRange(5, 7 * 86_400),
    default=60,
    show_default=True,
    help="Seconds of faults.",
)
@click.option("--seed", type=click.IntRange(0), help="Of everything left to chance.  [default: a new one]")
@click.option(
    "--rate",
    type=click.FloatRange(1, 50_000),
    default=300,
    show_default=True,
    help="Messages scheduled per second.",
)
@click.option(
    "--network", type=click.Choice(["proxy", "namespaces"]), default="proxy", show_default=True,
    help="What cuts: a proxy between all processes, or network namespaces (root; real packets vanish, only cuts).",
)  # fmt: skip
@click.option(
    "--only", multiple=True, type=click.Choice(RANDOM_KINDS),
    help="Draw random faults of this kind only; may be given several times.",
)  # fmt: skip
@click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), help="Write a page of what happened (HTML)."
)
@click.option(
    "--history", type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the history of all clients, for `dueq-chaos check`.",
)  # fmt: skip
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path),
    help="New folder for the mesh, kept.  [default: a temporary one, kept when something is found]",
)  # fmt: skip
def run(
    scenarios: tuple[str, ...], listing: bool, duration: float, seed: int | None, rate: float, network: str,
    only: tuple[str, ...], report: Path | None, history: Path | None, data: Path | None,
) -> int:  # fmt: skip
    """Break a mesh of real processes under traffic, and judge what its clients saw.

    SCENARIOs are played one after another; without any, faults are drawn at random from the seed. Ctrl-C ends
    the faults, undoes them, and judges what is there (exit status 130); a second one ends everything at once.
    """
    console = Console(highlight=False)
    if listing:
        _list(console, network == "namespaces")
        return 0
    names = scenarios or (RANDOM,)
    if unknown := [name for name in names if name not in SCENARIOS and name != RANDOM]:
        raise click.UsageError(f"there is no scenario {unknown[0]!r}: see --list")
    if only and RANDOM not in names:
        raise click.UsageError(f"--only is for random faults, and {names[0]!r} is a scenario")
    if data is not None and data.exists() and any(data.iterdir()):
        raise click.UsageError(f"{data} is not empty")
    folder = data or Path(tempfile.mkdtemp(prefix="dueq-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    seed = secrets.randbits(_SEED_BITS) if seed is None else seed
    settings = Settings(
        names,
        duration,
        seed,
        rate,
        folder,
        history or folder / "history.jsonl",
        network == "namespaces",
        only,
    )
    outcome = _carried_out(settings, console)
    if report is not None:
        write_report(outcome, report)
        console.print(f"report: {report}")
    _tell(outcome, settings, console)
    if data is None and outcome.good:
        shutil.rmtree(folder, ignore_errors=True)
    elif data is None:
        console.print(f"kept: {folder}")
    return 130 if outcome.interrupted else 0 if outcome.good else 1


def _carried_out(settings: Settings, console: Console) -> Outcome:
    impossible = impossible_here(settings.namespaces)
    for kind, reason in impossible.items():
        console.print(f"not possible here: {kind}: {reason}")
    console.print(f"dueq-chaos run {' '.join(settings.scenarios)} --seed {settings.seed}", soft_wrap=True)
    with Screen(console) as screen:
        return Run(settings, impossible, screen).carry_out()


def _list(console: Console, namespaces: bool) -> None:
    impossible = impossible_here(namespaces)
    table = Table.grid(padding=(0, 2))
    table.add_row(RANDOM, "Anything, weighted by the seed, up to three at once (the default).")
    for name, scenario in SCENARIOS.items():
        without = [kind for kind in scenario.kinds if kind in impossible]
        left_out = f" [dim](without {', '.join(without)})[/dim]" if without else ""
        table.add_row(name, scenario.story + left_out)
    console.print(table)
    for kind, reason in impossible.items():
        console.print(f"not possible here: {kind}: {reason}")


def _tell(outcome: Outcome, settings: Settings, console: Console) -> None:
    table = Table.grid(padding=(0, 3))
    for name, count in outcome.counts.items():
        table.add_row(name, f"{count:,}")
    table.add_row("")
    for name, count in outcome.verdicts.items():
        table.add_row(name, f"[{'bold red' if count else 'green'}]{count:,}[/]")
    console.print(table)
    for line in (*outcome.troubles, *outcome.examples):
        console.print(line, markup=False, soft_wrap=True)
    if outcome.good:
        console.print(f"[green]nothing happened that must not[/] ({len(outcome.happenings)} faults)")
    else:
        console.print("[bold red]something happened that must not[/]; again (timing is the machine's own):")
        console.print(f"  {settings.as_texts()['again']}", soft_wrap=True)

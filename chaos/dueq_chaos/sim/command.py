"""`dueq-chaos sim`: seeds by the thousand, or one of them, told in full."""

from __future__ import annotations

import os
import sys
import time

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from dueq_chaos.sim import campaign, story
from dueq_chaos.sim.campaign import Tally
from dueq_chaos.sim.shrink import part_of, read, shrink, spell
from dueq_chaos.sim.storms.plan import Plan, draw
from dueq_chaos.sim.storms.storm import Outcome, Storm
from dueq_chaos.sim.users.often import EVERYTHING_FROM

_TOLD_MAX = 3
"""Failures that are told in full; of the others only the seed and the first verdict."""


def _steps(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    try:
        return read(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not like 0-3,7: {error}") from error


@click.command("sim")
@click.option(
    "--seeds", type=click.IntRange(1), default=300, show_default=True, help="How many seeds to run."
)
@click.option(
    "--first", type=click.IntRange(0), default=EVERYTHING_FROM, show_default=True,
    help="The first of them. Storms of smaller ones lack some kinds of users.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), help="Replay this one exactly and print what happened.")
@click.option("--steps", callback=_steps, help="With --seed: only these steps of its plan, such as 0-3,7.")
@click.option(
    "--jobs", type=click.IntRange(1), default=lambda: os.cpu_count() or 1, show_default="one a core",
    help="How many processes.",
)  # fmt: skip
@click.option(
    "--minutes", type=click.FloatRange(0), default=0.0, show_default="some seconds, as the seed will have it",
    help="How long each storm lasts, in simulated minutes.",
)  # fmt: skip
@click.option(
    "--shrink", "shrink_s", type=click.FloatRange(0), default=60.0, show_default=True,
    help="How many seconds to spend on making a failure shorter.",
)  # fmt: skip
@click.option(
    "--coverage", is_flag=True,
    help="Say which rare situations the storms brought about, and what of the core none has taken (slower).",
)  # fmt: skip
def sim(
    seeds: int, first: int, seed: int | None, steps: tuple[int, ...] | None, jobs: int, minutes: float,
    shrink_s: float, coverage: bool,
) -> None:  # fmt: skip
    """Run whole meshes in simulated storms and check that no message is harmed.

    Everything in a run follows from its seed. The exit status is 1 if an invariant was violated.
    """
    console = Console()
    if seed is not None:
        sys.exit(_replay(console, seed, steps, minutes, shrink_s))
    sys.exit(_campaign(console, range(first, first + seeds), jobs, minutes, shrink_s, coverage))


# -------------------------------------------------------------------- one seed


def _replay(
    console: Console, seed: int, steps: tuple[int, ...] | None, minutes: float, shrink_s: float
) -> int:
    whole = draw(seed, minutes)
    if steps is not None and any(at >= len(whole.steps) for at in steps):
        raise click.UsageError(f"seed {seed} has {len(whole.steps)} steps, 0 to {len(whole.steps) - 1}")
    plan = whole if steps is None else part_of(whole, steps)
    outcome = Storm(seed, plan).run()
    if not outcome.verdicts:
        _print(console, [*(line.rstrip() for line in outcome.trace), "", _summary(outcome)])
        return 0
    _tell_failure(console, outcome, plan, whole, minutes, 0.0 if steps is not None else shrink_s)
    return 1


def _summary(outcome: Outcome) -> str:
    faults = ", ".join(f"{count} × {kind}" for kind, count in sorted(outcome.faults.items())) or "none"
    return (
        f"seed {outcome.seed}: nothing was harmed in {outcome.simulated_us / 1e6:.1f} simulated seconds, "
        f"{outcome.steps:,} steps, {outcome.messages} messages, {outcome.deliveries} deliveries; faults: {faults}"
    )


def _tell_failure(
    console: Console, outcome: Outcome, plan: Plan, whole: Plan, minutes: float, shrink_s: float
) -> None:
    """Shrink it, tell it, and say how to see it again."""
    command = f"dueq-chaos sim --seed {outcome.seed}" + (f" --minutes {minutes:g}" if minutes else "")
    told, repeat = (outcome, plan), command
    if shrink_s:
        console.print(f"seed {outcome.seed} fails; making it shorter …", style="yellow", highlight=False)
        shrunk = shrink(plan, outcome, shrink_s)
        told = (shrunk.outcome, shrunk.plan)
        if len(shrunk.kept) < len(whole.steps):
            repeat = f"{command} --steps {spell(shrunk.kept) or ','}"
    _print(console, story.tell(*told))
    _print(console, ["", f"the whole of it: {command} --shrink 0", f"this much of it: {repeat}"])


def _print(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


# -------------------------------------------------------------------- many seeds


def _campaign(
    console: Console, seeds: range, jobs: int, minutes: float, shrink_s: float, coverage: bool
) -> int:
    tally, began = Tally(), time.monotonic()
    console.print(f"seeds {seeds.start} to {seeds.stop - 1}, {jobs} at a time", highlight=False)
    stopped = False
    with _progress(console) as progress:
        task = progress.add_task("", total=len(seeds), rate="")

        def done(outcome: Outcome) -> None:
            tally.add(outcome)
            if outcome.verdicts:
                text = f"seed {outcome.seed}: {outcome.verdicts[0]}"
                progress.console.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
            progress.update(task, advance=1, rate=_rate(tally, time.monotonic() - began))

        try:
            campaign.run(seeds, jobs, minutes, done, coverage)
        except KeyboardInterrupt:
            stopped = True
    if stopped:
        console.print("stopped", style="yellow")
    console.print(_table(tally, time.monotonic() - began))
    if coverage:
        _print(console, tally.coverage.told())
    for outcome in sorted(tally.failures.values(), key=lambda failed: failed.seed)[:_TOLD_MAX]:
        whole = draw(outcome.seed, minutes)
        _tell_failure(console, outcome, whole, whole, minutes, 0.0 if stopped else shrink_s)
    return 1 if tally.failures else 130 if stopped else 0


def _progress(console: Console) -> Progress:
    return Progress(
        BarColumn(bar_width=8), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True), console=console,
    )  # fmt: skip


def _rate(tally: Tally, seconds: float) -> str:
    seconds = max(seconds, 1e-3)
    return (
        f"{tally.seeds / seconds:.1f} seeds/s · {tally.simulated_us / 60e6 / seconds:.1f} sim. min/s · "
        f"{tally.faults.total():,} faults · {len(tally.failures)} failed"
    )


def _table(tally: Tally, seconds: float) -> Table:
    table = Table(title="What the storms came to", show_header=False)
    rows = [
        ("seeds", f"{tally.seeds:,} in {seconds:.0f} s"),
        ("simulated", f"{tally.simulated_us / 3.6e9:.2f} hours, {tally.steps:,} broker steps checked"),
        ("messages", f"{tally.messages:,} acknowledged, {tally.deliveries:,} deliveries"),
        ("traffic", _counts(dict(tally.traffic))),
        ("faults", f"{tally.faults.total():,}: {_counts(dict(tally.faults))}"),
    ]
    failed = ", ".join(str(seed) for seed in sorted(tally.failures)[:20])
    rows.append(
        ("verdicts", f"[red]{len(tally.failures)} seeds failed: {failed}" if failed else "[green]none")
    )
    for name, value in rows:
        table.add_row(name, value)
    return table


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items(), key=lambda pair: -pair[1]))

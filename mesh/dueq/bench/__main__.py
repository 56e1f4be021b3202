"""`python -m dueq.bench`: measure, print, keep."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from dueq.bench.catalogue import MEASUREMENTS, NAMES, Measurement, chosen
from dueq.bench.figures import Figure, Row
from dueq.bench.growth import series_of
from dueq.bench.machine import Machine, Processor
from dueq.bench.report import Report
from dueq.bench.stage import Stage

_WIDTH_MIN = 140
_HELP = "\n\n\b\n" + "\n".join(f"{m.name:<15}{m.words}" for m in MEASUREMENTS)


@click.command(help="Measure what this machine carries, on fresh meshes of real processes." + _HELP)
@click.option("--quick", is_flag=True, help="About a minute: fewer messages, fewer runs.")
@click.option(
    "--only", multiple=True, type=click.Choice(NAMES), metavar="NAME", help="Only this one; may be repeated."
)
@click.option(
    "--json",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep the figures.",
)
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.png",
    help="Draw how costs grow with size (needs matplotlib).",
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=None,
    metavar="N",
    help="Of what grows: runs of each size (3; in a quick run 1).",
)
@click.option(
    "--huge",
    is_flag=True,
    help="far-ahead and keyed with ten million messages, backlog with five million too: long.",
)
@click.option(
    "--folder", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where the data lies while it is measured; default: the folder for temporary files.",
)  # fmt: skip
def main(
    quick: bool,
    only: tuple[str, ...],
    path: Path | None,
    picture: Path | None,
    runs: int | None,
    huge: bool,
    folder: Path | None,
) -> None:
    """Measure, print, keep. The exit code is 1 if something could not be measured."""
    if picture is not None and find_spec("matplotlib") is None:
        raise click.UsageError("--plot needs matplotlib: install dueq[plot]")
    signal.signal(signal.SIGTERM, _interrupt)
    with tempfile.TemporaryDirectory(prefix="dueq-bench-", dir=folder) as place:
        report = _run(chosen(only, quick), Path(place), quick, huge, runs or 0)
    console = Console()
    report.print(console if console.is_terminal else Console(width=_WIDTH_MIN))
    if path is not None:
        path.write_text(json.dumps(report.document(), indent=2) + "\n", encoding="utf-8")
    series = series_of(report.figures)
    if picture is not None and series:
        from dueq.bench.plot import draw

        draw(series, picture, f"{datetime.now(UTC):%Y-%m-%d}, {report.machine.lines()[0]}")
    sys.exit(0 if report.good else 1)


def _run(measurements: list[Measurement], folder: Path, quick: bool, huge: bool, runs: int) -> Report:
    machine = Machine.find(folder)
    begun_s = time.monotonic()
    figures: list[Figure] = []
    stolen: dict[str, float] = {}
    interrupted = False
    console = Console(stderr=True)
    with console.status("") as status:

        def say(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                console.print(text, highlight=False)

        stage = Stage(folder, quick, huge, runs, say)
        try:
            for measurement in measurements:
                begun = Processor.now()
                figures += _measure(measurement, stage)
                stolen[measurement.name] = Processor.now().stolen_since(begun)
        except KeyboardInterrupt:
            interrupted = True
            figures += stage.take_noted()
    return Report(machine, figures, quick, time.monotonic() - begun_s, interrupted, stolen)


def _measure(measurement: Measurement, stage: Stage) -> list[Figure]:
    """Measure; the report says what went wrong, and the other measurements go on."""
    stage.take_noted()
    try:
        return measurement.run(stage)
    except Exception as error:
        traceback.print_exc()
        row = Row(measurement.name, measurement.words, "")
        return [*stage.take_noted(), Figure(row, error=f"{type(error).__name__}: {error}")]


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()

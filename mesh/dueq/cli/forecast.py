"""`dueq forecast`."""

from __future__ import annotations

import json

import click

from dueq import limits
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.tables import new_table, print_table
from dueq.time_text import instant_text

_BAR_WIDTH = 40


@click.command()
@click.argument("topic")
@click.option(
    "--seconds",
    "-s",
    type=click.IntRange(1, limits.FORECAST_SECONDS_MAX),
    default=60,
    show_default=True,
    help="How far to look ahead.",
)
@json_option
@mesh_options
def forecast(topic: str, seconds: int, as_json: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """Show how many messages of TOPIC fall due in the time ahead."""
    with connect(endpoint, timeout) as client:
        counts = [(int(instant), int(count)) for instant, count in client.forecast(topic, seconds=seconds)]
    if as_json:
        click.echo(json.dumps([{"at": instant, "count": count} for instant, count in counts]))
        return
    busy = [(instant, count) for instant, count in counts if count]
    if not busy:
        click.echo(f"nothing falls due in {topic} within {seconds} s")
        return
    total = sum(count for _, count in busy)
    shown = new_table(f"{topic}: {total:,} due within {seconds:,} s", "from", ">due", "|")
    top = max(count for _, count in busy)
    for instant, count in busy:
        shown.add_row(instant_text(instant), f"{count:,}", "█" * max(1, count * _BAR_WIDTH // top))
    print_table(shown, **{"from": 24})

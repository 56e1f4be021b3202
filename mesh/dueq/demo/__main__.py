"""`python -m dueq.demo`: the flight day."""

from __future__ import annotations

import json
import logging
import signal
import sys
from types import FrameType
from typing import Final

import click

from dueq.demo.day import DEFAULT_DAY, FlightDay, Options
from dueq.errors import DueqError

_INTERRUPTED: Final = 130
"""The exit code, as of `dueq`."""


@click.command()
@click.option("--day", default=DEFAULT_DAY, show_default=True, metavar="YYYY-MM-DD", help="A day of 2013.")
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=30.0, show_default=True, help="How long the day takes."
)
@click.option("--no-kill", is_flag=True, help="Let all brokers live.")
@click.option("--json", "as_json", is_flag=True, help="Print nothing but the report, as JSON.")
def main(day: str, seconds: float, no_kill: bool, as_json: bool) -> None:
    """Let one day of New York's departures of 2013 run through a mesh of three brokers.

    Spark schedules every departure at its scheduled time, delayed flights are moved and cancelled ones
    cancelled, two consumers show what departs, and in the middle a broker is killed with SIGKILL. The exit
    code is 0 only if nothing was lost, delivered twice or early; it is 130 after Ctrl-C.
    """
    interrupted = _Interrupted()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted.on_signal)
    try:
        report = FlightDay(Options(day, seconds, kill=not no_kill, quiet=as_json)).run()
    except (Exception, KeyboardInterrupt) as error:
        if interrupted.so_far:  # a call of Spark that is cut short has errors of its own
            click.echo("interrupted", err=True)
            sys.exit(_INTERRUPTED)
        if isinstance(error, DueqError):
            raise click.ClickException(str(error)) from error
        raise
    if as_json:
        click.echo(json.dumps(report.document(), indent=2))
    else:
        report.print()
    sys.exit(0 if report.good else 1)


class _Interrupted:
    """Whether a signal has come, which ends the day.

    Attributes:
        so_far: it has.
    """

    so_far = False

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """End what is being done."""
        self.so_far = True
        logging.disable()  # py4j complains at length that it was interrupted
        raise KeyboardInterrupt


if __name__ == "__main__":
    main()

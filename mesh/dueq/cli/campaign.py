"""`dueq campaign`."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from dueq.cli.group import SuggestingGroup
from dueq.cli.options import connect, endpoints, json_option, mesh_options
from dueq.cli.outcomes import counted
from dueq.cli.tables import new_table, print_table
from dueq.errors import DueqError

if TYPE_CHECKING:
    from dueq import Client
    from dueq.campaign import CampaignReport, Spec

_FILE = click.Path(dir_okay=False, path_type=Path)
_ASK_S = 5.0
"""Longest wait for an answer once Ctrl-C was pressed."""


@click.group(cls=SuggestingGroup)
def campaign() -> None:
    """Plan, load and take back campaigns: many messages from a table, loaded by Spark."""


@campaign.command()
@click.argument("spec", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Plan only, and draw the plan; nothing is sent.")
@click.option("--plot", type=_FILE, help="Draw messages per minute into this PNG. A dry run draws SPEC.png.")
@click.option(
    "--report",
    type=_FILE,
    help="Write the report here as JSON.  [default: SPEC.report.json, dry: SPEC.plan.json]",
)
@click.option("--job-id", help="Load under this name, not one derived from the specification.")
@json_option
@mesh_options
def run(
    spec: Path, dry_run: bool, plot: Path | None, report: Path | None, job_id: str | None, as_json: bool,
    endpoint: tuple[str, ...], timeout: float,
) -> None:  # fmt: skip
    """Load the campaign that the file SPEC describes. Running it again loads nothing twice."""
    _run(spec, dry_run, plot, report, job_id, as_json, endpoint, timeout)


@campaign.command()
@click.argument("spec", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--plot", type=_FILE, help="Draw messages per minute into this PNG.  [default: SPEC.png]")
@click.option("--report", type=_FILE, help="Write the report here as JSON.  [default: SPEC.plan.json]")
@json_option
@mesh_options
def plan(
    spec: Path,
    plot: Path | None,
    report: Path | None,
    as_json: bool,
    endpoint: tuple[str, ...],
    timeout: float,
) -> None:
    """Show what `run` would do with the file SPEC: the same as `run --dry-run`."""
    _run(spec, True, plot, report, None, as_json, endpoint, timeout)


@campaign.command()
@click.argument("job_id")
@click.option("--topic", help="The topic of the messages. Default: all topics are asked.")
@click.option("--no-wait", is_flag=True, help="Return while messages are still being withdrawn.")
@json_option
@mesh_options
def cancel(
    job_id: str, topic: str | None, no_wait: bool, as_json: bool, endpoint: tuple[str, ...], timeout: float
) -> None:
    """Take back the campaign that was loaded as JOB_ID, as its report says.

    As soon as this begins, no further message of it is delivered. Consumers keep the messages that they hold.
    """
    with _spark_installed():
        from dueq.campaign import cancel as take_back
    with connect(endpoint, timeout) as client:
        topic = topic or _topic_of(client, job_id)
        info = take_back(client, topic, job_id, wait=not no_wait, console=Console(stderr=True))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(info)))
    else:
        click.echo(f"cancelled {job_id}: {counted(info.messages)} left")


def _topic_of(client: Client, job_id: str) -> str:
    found = [info.name for info in client.topics() if client.job(info.name, job_id) is not None]
    if len(found) > 1:
        raise click.UsageError(
            f"several topics have a job {job_id!r}: {', '.join(found)}; name one with --topic."
        )
    if not found:
        raise click.UsageError(f"no topic knows of a job {job_id!r}.")
    return found[0]


def _run(
    file: Path, dry: bool, plot: Path | None, report: Path | None, job_id: str | None, as_json: bool,
    endpoint: tuple[str, ...], timeout: float,
) -> None:  # fmt: skip
    known = endpoints(endpoint)
    with _spark_installed():
        from dueq.campaign import Spec, loaded_before
        from dueq.campaign import run as carry_out
        from dueq.spark import spark_session
    spec = Spec.read(file)
    plot = plot or (file.with_suffix(".png") if dry else None)
    written = report or file.with_suffix(".plan.json" if dry else ".report.json")
    for target in (plot, written):
        _check_writable(target, file)
    # Spark takes seconds to start: check first whether mesh, topic and campaign exist.
    with connect(endpoint, timeout) as client:
        client.describe(spec.topic)
        done = None if dry else loaded_before(client, spec, job_id or spec.job_id)
    trouble = ""
    if done is None:
        with _interrupted_plainly(lambda: _left_behind(endpoint, spec, job_id, dry)) as listen:
            spark = spark_session(f"dueq campaign {spec.name}", spark_log_level="ERROR")
            listen()
            done = carry_out(
                spark,
                known,
                spec,
                job_id=job_id,
                dry=dry,
                plot=plot,
                console=Console(stderr=True),
                timeout=timeout,
            )
        try:
            done.write(written)
        except OSError as error:  # what was loaded is loaded: that is said first
            trouble = f"the report cannot be written into {written}: {error.strerror}"
    if as_json:
        click.echo(json.dumps(done.document(), ensure_ascii=False))
    else:
        _print(done)
    if trouble:
        raise click.ClickException(trouble)


@contextmanager
def _spark_installed() -> Iterator[None]:
    """PySpark is slow to import, and is an extra that may not be installed, so it is imported where it is
    used.
    """
    try:
        yield
    except ImportError as error:
        raise click.ClickException(
            f"a campaign needs PySpark: pip install 'dueq[spark,plot]' ({error})"
        ) from error


def _check_writable(file: Path | None, spec: Path) -> None:
    """Check before anything is sent that the report can be written, and not over the specification."""
    if file is not None and file.exists() and file.samefile(spec):
        raise click.UsageError(f"{file} is the specification: name another file.")
    if file is not None and not os.access(file if file.exists() else file.parent, os.W_OK):
        raise click.UsageError(f"{file} cannot be written.")


@contextmanager
def _interrupted_plainly(left_behind: Callable[[], str]) -> Iterator[Callable[[], None]]:
    """Say what Ctrl-C has left behind. Yields a function to call once Spark has set a handler of its own."""
    interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        logging.disable()  # py4j complains at length that it was interrupted
        raise KeyboardInterrupt

    def listen() -> None:
        signal.signal(signal.SIGINT, interrupt)

    before = signal.getsignal(signal.SIGINT)
    try:
        yield listen
    except (Exception, KeyboardInterrupt) as error:
        if not interrupted and not isinstance(error, KeyboardInterrupt):
            raise
        click.echo(f"\ninterrupted: {left_behind()}", err=True)
        raise click.Abort from None
    finally:
        logging.disable(logging.NOTSET)
        signal.signal(signal.SIGINT, before)


def _left_behind(endpoint: tuple[str, ...], spec: Spec, job_id: str | None, dry: bool) -> str:
    """Say what becomes of a campaign whose load was interrupted: the mesh knows whether it had been committed."""
    if dry:
        return "nothing was sent"
    name = job_id or spec.job_id
    if not spec.loading.atomic:
        rest = (
            f"the rest cannot be planned again as it was; take it back: dueq campaign cancel {name}"
            if spec.plan_moves
            else "the same command loads the rest"
        )
        return f"what was loaded will be delivered; {rest}"
    try:
        with connect(endpoint, _ASK_S) as client:
            info = client.job(spec.topic, name)
    except DueqError as error:
        return f"whether it was loaded is not known ({error}); the same command says so"
    if info is not None and info.state == "committed":
        return f"it had been loaded, and will be delivered; take it back: dueq campaign cancel {name}"
    return "nothing of it will be delivered; the same command loads it"


def _print(report: CampaignReport) -> None:
    shown = new_table(f"{report.name} in {report.topic}: {report.state}", "", ">", heads=False)
    shown.min_width = len(str(shown.title))
    for name, value in report.lines():
        shown.add_row(Text(name), Text(value))
    print_table(shown, Console())
    if report.plot:
        click.echo(f"drawn in {report.plot}")
    if report.state in ("loaded", "already loaded"):
        click.echo(f"take it back: dueq campaign cancel {report.job_id}")

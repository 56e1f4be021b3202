"""`dueq job`."""

from __future__ import annotations

import dataclasses
import json

import click

from dueq import JobInfo
from dueq.cli.group import SuggestingGroup
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.tables import new_table, print_table
from dueq.errors import JobNotFound
from dueq.time_text import instant_text


@click.group(cls=SuggestingGroup)
def job() -> None:
    """List, show and cancel jobs: messages that were loaded together."""


@job.command("list")
@click.argument("topic")
@json_option
@mesh_options
def list_(topic: str, as_json: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """List the jobs of TOPIC. The mesh knows their keys, not their names."""
    with connect(endpoint, timeout) as client:
        jobs = sorted(client.jobs(topic), key=lambda info: (info.state, info.until_ms, info.key))
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(info) for info in jobs]))
    elif jobs:
        _print(jobs)
    else:
        click.echo(f"no jobs in {topic}")


@job.command()
@click.argument("topic")
@click.argument("job_id")
@json_option
@mesh_options
def show(topic: str, job_id: str, as_json: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """Show the job JOB_ID (a name, or a key that `list` shows) of TOPIC."""
    with connect(endpoint, timeout) as client:
        info = client.job(topic, job_id)
    if info is None:
        raise JobNotFound(f"topic {topic!r} knows of no job {job_id!r}")
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(info)))
    else:
        _print([info])


@job.command()
@click.argument("topic")
@click.argument("job_id")
@mesh_options
def cancel(topic: str, job_id: str, endpoint: tuple[str, ...], timeout: float) -> None:
    """Take back those messages of the job JOB_ID of TOPIC that no consumer has.

    When it returns, nothing of the job is newly delivered; its messages are removed in the background
    (`dueq job show`).
    """
    with connect(endpoint, timeout) as client:
        client.cancel_job(topic, job_id)
    click.echo(f"cancelled {job_id}")


def _print(jobs: list[JobInfo]) -> None:
    shown = new_table("", "job", "state", ">messages left", "commit until", "worked off")
    for info in jobs:
        until = instant_text(info.until_ms)
        shown.add_row(
            info.job_id or info.key, info.state, f"{info.messages:,}", until if info.until_ms else "not hidden",
            "yes" if info.cleared else "no",
        )  # fmt: skip
    print_table(shown)

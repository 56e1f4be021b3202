"""`dueq trigger`."""

from __future__ import annotations

import click

from dueq.cli.named import version_option, versions
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.outcomes import known, report


@click.command()
@click.argument("topic")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@version_option
@json_option
@mesh_options
def trigger(
    topic: str,
    ids: tuple[str, ...],
    if_version: int | None,
    as_json: bool,
    endpoint: tuple[str, ...],
    timeout: float,
) -> int:
    """Deliver messages of TOPIC now, even if it is paused or has a rate. Exit code 1 if one of them could not be."""
    expected = versions(ids, if_version)
    with connect(endpoint, timeout) as client:
        outcomes = known(client.trigger_many, topic, list(ids), if_versions=expected)
    return report(ids, outcomes, "due now", as_json)

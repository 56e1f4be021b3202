"""`dueq trigger`."""

from __future__ import annotations

import click

from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.outcomes import report


@click.command()
@click.argument("topic")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@json_option
@mesh_options
def trigger(
    topic: str, ids: tuple[str, ...], as_json: bool, endpoint: tuple[str, ...], timeout: float
) -> int:
    """Have messages of TOPIC delivered now, past a pause or rate. Exit code 1 if one of them could not be."""
    with connect(endpoint, timeout) as client:
        outcomes = client.trigger_many(topic, list(ids))
    return report(ids, outcomes, "due now", as_json)

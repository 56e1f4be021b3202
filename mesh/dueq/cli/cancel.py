"""`dueq cancel`."""

from __future__ import annotations

import click

from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.outcomes import report


@click.command()
@click.argument("topic")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@json_option
@mesh_options
def cancel(topic: str, ids: tuple[str, ...], as_json: bool, endpoint: tuple[str, ...], timeout: float) -> int:
    """Cancel messages of TOPIC. Exit code 1 if one of them could not be cancelled."""
    with connect(endpoint, timeout) as client, client.producer(topic) as producer:
        outcomes = producer.cancel_many(list(ids))
    return report(ids, outcomes, "cancelled", as_json)

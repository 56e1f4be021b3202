"""`dueq leased`."""

from __future__ import annotations

import json

import click
from rich.text import Text

from dueq import limits
from dueq.cli.get import document_of
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.tables import new_table, print_table
from dueq.time_text import instant_text

_LIMIT = 20


@click.command()
@click.argument("topic")
@click.option(
    "--limit", "-n", type=click.IntRange(1, limits.LEASED_LISTED_MAX), default=_LIMIT, show_default=True,
    help="Show this many, partition by partition.",
)  # fmt: skip
@click.option("--after", metavar="ID", help="Begin after this message: the last one of an earlier list.")
@json_option
@mesh_options
def leased(
    topic: str, limit: int, after: str | None, as_json: bool, endpoint: tuple[str, ...], timeout: float
) -> None:
    """Show the messages of TOPIC that consumers have, who holds them, and when their leases end."""
    with connect(endpoint, timeout) as client:
        found = client.leased(topic, after=after, limit=limit)
    if as_json:
        for message in found:
            click.echo(json.dumps(document_of(message), ensure_ascii=False))
        return
    if not found:
        click.echo(f"no consumer has a message of {topic}")
        return
    shown = new_table("", "id", "lease ends", "holder", ">attempt", "key")
    for message in found:
        ends = instant_text(message.lease_ends) if message.lease_ends is not None else "ending"
        shown.add_row(message.id, ends, message.holder, str(message.attempt), Text(message.key))
    print_table(shown, id=26, lease_ends=24)
    if len(found) == limit:
        click.echo(f"more: --after {found[-1].id}")

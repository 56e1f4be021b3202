"""`dueq get`."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from dueq import MessageState
from dueq.cli.named import group_option
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.tables import new_table, print_table
from dueq.time_text import instant_text

_INSTANTS = ("due", "waits_until", "lease_ends", "expires", "died_at")
_LEFT_OUT = ("expires", "died_at", "headers", "key", "group", "holder", "reason", "attempt", "rank")
"""What is not said of a message that has none of it; JSON says it."""


@click.command()
@click.argument("topic")
@click.argument("message_id", metavar="[ID]", required=False)
@click.option(
    "--key", metavar="TEXT", help="The message's key instead of its ID, in a topic with unique keys."
)
@group_option
@click.option("--payload", is_flag=True, help="Show the payload too.")
@click.option(
    "--linearizable", is_flag=True,
    help="Have the leader make sure that it still leads, so that every change confirmed before is seen.",
)  # fmt: skip
@json_option
@mesh_options
def get(
    topic: str,
    message_id: str | None,
    key: str | None,
    group: str | None,
    payload: bool,
    linearizable: bool,
    as_json: bool,
    endpoint: tuple[str, ...],
    timeout: float,
) -> None:
    """Show one message of TOPIC as it is now. Exit code 1 if there is none of this ID or key (any more)."""
    if (message_id is None) == (key is None):
        raise click.UsageError("Name the message by its ID or by --key.")
    with connect(endpoint, timeout) as client:
        found = client.get(
            topic, message_id, key=key, group=group, payload=payload, linearizable=linearizable
        )
    document = document_of(found)
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    shown = new_table(f"{topic}: {found.id}", "field", "value")
    for name, value in document.items():
        if name in _LEFT_OUT and not value:
            continue
        if name in _INSTANTS:
            value = instant_text(value)
        shown.add_row(name, Text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
    print_table(shown)


def document_of(found: MessageState) -> dict[str, Any]:
    """Return what JSON says of a message."""
    document = asdict(found)
    if document["lease_ends"] is None:
        del document["lease_ends"], document["token"]
    payload = document.pop("payload")
    if payload is not None:
        try:
            document["payload"] = payload.decode("utf-8")
        except UnicodeDecodeError:
            document["payload_base64"] = base64.b64encode(payload).decode("ascii")
    return document

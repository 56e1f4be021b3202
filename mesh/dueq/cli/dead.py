"""`dueq dead`: messages that are not tried again."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from functools import partial
from typing import Any

import click
from rich.text import Text

from dueq import Client, Filter, ScheduledMessage
from dueq.cli import where
from dueq.cli.asking import ask
from dueq.cli.browse import document_of
from dueq.cli.instants import duration
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.outcomes import counted, known, report
from dueq.cli.tables import new_table, print_table
from dueq.time_text import instant_text

_DEAD = Filter(state="dead")


@click.group()
def dead() -> None:
    """Show dead messages, let them wait again, or discard them."""


@dead.command("list")
@click.argument("topic")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many to show.")
@json_option
@mesh_options
def list_(topic: str, limit: int, as_json: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """Show the dead messages of TOPIC, partition by partition, in the order of their deaths."""
    shown = new_table("", "id", "key", "died", ">attempts", "reason")
    count = 0
    with connect(endpoint, timeout) as client:
        for count, message in enumerate(client.browse(topic, state="dead"), 1):
            if count > limit:
                break
            if as_json:
                click.echo(json.dumps(_document(message), ensure_ascii=False))
                continue
            died = instant_text(message.died_at)
            shown.add_row(message.id, Text(message.key), died, str(message.attempt), Text(message.reason))
    if as_json:
        return
    if not count:
        click.echo(f"no message of {topic} is dead")
        return
    print_table(shown, id=26, died=24)
    if count > limit:
        click.echo(f"and more: --limit {2 * limit} shows them")


def _document(message: ScheduledMessage) -> dict[str, Any]:
    """What JSON says of a dead message: what it does of one that waits, and of its end."""
    return document_of(message, payloads=False) | {"died_at": message.died_at, "reason": message.reason}


@dead.command()
@click.argument("topic")
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option(
    "--spread", metavar="DURATION", callback=duration,
    help="Spread them evenly over this time from now on: 10m. Default: at once.",
)  # fmt: skip
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@mesh_options
def redrive(
    topic: str,
    ids: tuple[str, ...],
    spread: timedelta | None,
    yes: bool,
    endpoint: tuple[str, ...],
    timeout: float,
) -> int:
    """Let the dead messages of TOPIC with these IDs, or all, wait again as if they had never been tried."""
    if ids and spread is not None:
        raise click.UsageError("--spread is for all dead messages, not for IDs.")
    with connect(endpoint, timeout) as client:
        if ids:
            with client.producer(topic) as producer:
                return report(ids, known(producer.redrive_many, list(ids)), "redriven", as_json=False)
        _ask(client, topic, "Redrive", yes)
        where.report(
            topic, None, "redriven", partial(client.redrive_where, topic, _DEAD, spread=spread or 0.0)
        )
    return 0


@dead.command()
@click.argument("topic")
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@mesh_options
def discard(topic: str, ids: tuple[str, ...], yes: bool, endpoint: tuple[str, ...], timeout: float) -> int:
    """Discard the dead messages of TOPIC with these IDs, or all."""
    with connect(endpoint, timeout) as client:
        if ids:
            with client.producer(topic) as producer:
                return report(ids, known(producer.discard_many, list(ids)), "discarded", as_json=False)
        _ask(client, topic, "Discard", yes)
        where.report(topic, None, "discarded", partial(client.discard_where, topic, _DEAD))
    return 0


def _ask(client: Client, topic: str, verb: str, yes: bool) -> None:
    """Show how many it is about, and ask."""
    if not yes:
        found = client.count_where(topic, _DEAD)
        if not found:
            return
        if not sys.stdin.isatty():
            raise click.UsageError(f"dead in {topic}: {counted(found)}; nobody can be asked here: say --yes.")
        ask(f"{verb} {counted(found)} of {topic}?")

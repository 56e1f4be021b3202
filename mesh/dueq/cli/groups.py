"""`dueq group`."""

from __future__ import annotations

import dataclasses
import json

import click

from dueq.cli.group import SuggestingGroup
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.tables import new_table, print_table


@click.group(cls=SuggestingGroup)
def group() -> None:
    """Set weights and limits for groups of fair topics, and list them."""


@group.command("set")
@click.argument("topic")
@click.argument("name")
@click.option("--weight", type=int, help="How many messages the group gets at its turn, 1 to 1,000.")
@click.option("--max-unacked", type=int, help="Messages that consumers may hold at once; 0: no limit.")
@click.option("--paused/--resumed", default=None, help="Deliver none of its messages, or deliver them again.")
@click.option(
    "--rate", type=int, help="Deliver at most this many messages a second, a whole number; 0: no limit."
)
@click.option(
    "--burst", type=int, help="Deliver at most this many of them at once; 0: as many as in a second."
)
@mesh_options
def set_(
    topic: str,
    name: str,
    weight: int | None,
    max_unacked: int | None,
    paused: bool | None,
    rate: int | None,
    burst: int | None,
    endpoint: tuple[str, ...],
    timeout: float,
) -> None:
    """Set something for the group NAME of TOPIC, and so for all groups below it.

    NAME is such as acme.reports. What is not given stays as it is.
    """
    with connect(endpoint, timeout) as client:
        client.set_group(
            topic, name, weight=weight, max_unacked=max_unacked, paused=paused, rate=rate, burst=burst
        )


@group.command("list")
@click.argument("topic")
@json_option
@mesh_options
def list_(topic: str, as_json: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """List the groups of TOPIC that have messages, or for which something is set, by name."""
    with connect(endpoint, timeout) as client:
        found = client.groups(topic)
        if as_json:
            for info in found:
                click.echo(json.dumps(dataclasses.asdict(info)))
            return
        shown = new_table("", "group", ">messages", ">weight", ">max unacked", ">rate", ">burst", "paused")
        for info in found:
            limits = [
                f"{limit:,}" if limit else "-"
                for limit in (info.max_unacked, info.rate, (info.burst or info.rate) if info.rate else 0)
            ]
            paused = "yes" if info.paused else ""
            shown.add_row(info.name, f"{info.messages:,}", str(info.weight), *limits, paused)
    if shown.row_count:
        print_table(shown)
    else:
        click.echo(f"no groups in {topic} that have messages or settings")

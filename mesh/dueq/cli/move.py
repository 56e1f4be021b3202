"""`dueq move`."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from dueq.cli.instants import chosen_due, due_options
from dueq.cli.named import each, either, group_option, key_option, version_option, versions
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.outcomes import known, report


@click.command()
@click.argument("topic")
@click.argument("ids", nargs=-1, metavar="[ID…]")
@key_option
@group_option
@version_option
@due_options
@json_option
@mesh_options
def move(
    topic: str,
    ids: tuple[str, ...],
    keys: tuple[str, ...],
    group: str | None,
    if_version: int | None,
    at: int | datetime | None,
    after: timedelta | None,
    as_json: bool,
    endpoint: tuple[str, ...],
    timeout: float,
) -> int:
    """Give messages of TOPIC another due instant. Exit code 1 if one of them could not be moved."""
    due = chosen_due(at, after)
    named = either(ids, keys)
    expected = versions(named, if_version)
    with connect(endpoint, timeout) as client, client.producer(topic) as producer:
        if keys:
            outcomes = each(keys, producer.move, group, if_version=if_version, due=due)
        else:
            outcomes = known(producer.move_many, list(ids), [due] * len(ids), if_versions=expected)
    return report(named, outcomes, "moved", as_json)

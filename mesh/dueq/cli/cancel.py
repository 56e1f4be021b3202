"""`dueq cancel`."""

from __future__ import annotations

import click

from dueq.cli.named import each, either, group_option, key_option, version_option, versions
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.outcomes import known, report


@click.command()
@click.argument("topic")
@click.argument("ids", nargs=-1, metavar="[ID…]")
@key_option
@group_option
@version_option
@json_option
@mesh_options
def cancel(
    topic: str,
    ids: tuple[str, ...],
    keys: tuple[str, ...],
    group: str | None,
    if_version: int | None,
    as_json: bool,
    endpoint: tuple[str, ...],
    timeout: float,
) -> int:
    """Cancel messages of TOPIC. Exit code 1 if one of them could not be cancelled."""
    named = either(ids, keys)
    expected = versions(named, if_version)
    with connect(endpoint, timeout) as client, client.producer(topic) as producer:
        if keys:
            outcomes = each(keys, producer.cancel, group, if_version=if_version)
        else:
            outcomes = known(producer.cancel_many, list(ids), if_versions=expected)
    return report(named, outcomes, "cancelled", as_json)

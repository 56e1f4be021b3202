"""`dueq change`."""

from __future__ import annotations

import click

from dueq.cli.named import each, either, group_option, key_option, version_option, versions
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.outcomes import known, report
from dueq.limits import RANK_MAX


@click.command()
@click.argument("topic")
@click.argument("ids", nargs=-1, metavar="[ID…]")
@key_option
@group_option
@version_option
@click.option("--rank", type=click.IntRange(0, RANK_MAX), required=True, help="The smallest goes first.")
@json_option
@mesh_options
def change(
    topic: str,
    ids: tuple[str, ...],
    keys: tuple[str, ...],
    group: str | None,
    if_version: int | None,
    rank: int,
    as_json: bool,
    endpoint: tuple[str, ...],
    timeout: float,
) -> int:
    """Give messages of a priority or fair topic another rank. Exit code 1 if one of them could not be changed."""
    named = either(ids, keys)
    expected = versions(named, if_version)
    with connect(endpoint, timeout) as client, client.producer(topic) as producer:
        if keys:
            outcomes = each(keys, producer.change, group, if_version=if_version, rank=rank)
        else:
            outcomes = known(producer.change_many, list(ids), ranks=rank, if_versions=expected)
    return report(named, outcomes, "changed", as_json)

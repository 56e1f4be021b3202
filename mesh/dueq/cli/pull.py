"""`dueq pull` and `dueq settle`: messages that are taken once, and finished by whoever knows id and token."""

from __future__ import annotations

import time
from datetime import timedelta

import click

from dueq import Outcome
from dueq.cli.delivered import line, line_options
from dueq.cli.headers import header_option
from dueq.cli.instants import duration
from dueq.cli.options import connect, mesh_options
from dueq.cli.outcomes import counted
from dueq.limits import PULL_ROWS_MAX


@click.command()
@click.argument("topic")
@click.option(
    "--max", "-n", "most", type=click.IntRange(1, PULL_ROWS_MAX), default=10, show_default=True,
    help="How many messages at most.",
)  # fmt: skip
@click.option(
    "--wait", default="0s", show_default=True, metavar="DURATION", callback=duration,
    help="How long to wait for one: 30s, 5m.",
)  # fmt: skip
@click.option(
    "--lease", default="30s", show_default=True, metavar="DURATION", callback=duration,
    help="How long they are leased to you.",
)  # fmt: skip
@click.option(
    "--consumer", metavar="NAME",
    help="A name of yours. First, what an earlier pull of this name took and nobody has finished comes again.",
)  # fmt: skip
@click.option("--ack", is_flag=True, help="Finish them once they are printed.")
@line_options
@mesh_options
def pull(
    topic: str,
    most: int,
    wait: timedelta,
    lease: timedelta,
    consumer: str | None,
    ack: bool,
    style: str,
    with_key: bool,
    with_rank: bool,
    with_group: bool,
    with_headers: bool,
    as_json: bool,
    endpoint: tuple[str, ...],
    timeout: float,
) -> int:
    """Take messages of TOPIC that are ready, once, and print them.

    They stay leased when this command has ended: `dueq settle` finishes them, with the id and token that --json shows.
    With --ack the exit code is 1 if a lease was over before that.
    """
    style = "json" if as_json else style
    with connect(endpoint, timeout) as client:
        messages = client.pull(topic, most, wait, lease, consumer=consumer)
        received_at_ms = time.time_ns() / 1e6
        for message in messages:
            click.echo(line(message, style, with_key, with_rank, with_group, with_headers, received_at_ms))
        if not ack or not messages:
            return 0
        outcomes = client.settle(topic, [(message.id, message.token) for message in messages], "ack")
    if over := sum(outcome is not Outcome.DONE for outcome in outcomes):
        text = f"the leases of {over:,} of {counted(len(outcomes))} were over before they were finished"
        click.echo(f"dueq: {text}; they come again", err=True)
        return 1
    return 0


@click.command()
@click.argument("topic")
@click.argument("how", type=click.Choice(("ack", "nack", "release", "extend")))
@click.argument("message_id", metavar="ID")
@click.argument("token", type=int)
@click.option(
    "--delay", metavar="DURATION", callback=duration,
    help="With nack and release: deliver it again after this long.",
)  # fmt: skip
@click.option(
    "--for",
    "for_",
    metavar="DURATION",
    callback=duration,
    help="With extend: how long it is leased to you from now on.",
)
@click.option("--reason", default="", help="With nack: the reason.")
@click.option("--dead", is_flag=True, help="With nack: never deliver it again.")
@header_option("the next delivery (nack only), in place of all that the message has")
@mesh_options
def settle(
    topic: str,
    how: str,
    message_id: str,
    token: int,
    delay: timedelta | None,
    for_: timedelta | None,
    reason: str,
    dead: bool,
    headers: dict[str, str] | None,
    endpoint: tuple[str, ...],
    timeout: float,
) -> int:
    """Finish, give back or extend a message of TOPIC by its ID and the TOKEN of its lease.

    Exit code 1 if the lease was over, or another lease had followed.
    """
    if how == "extend" and for_ is None:
        raise click.UsageError("extend takes --for: how long the message is leased to you from now on.")
    if how != "extend" and for_ is not None:
        raise click.UsageError(f"--for is for extend, not for {how}.")
    with connect(endpoint, timeout) as client:
        [outcome] = client.settle(
            topic,
            [(message_id, token)],
            how,
            delay=delay,
            seconds=for_,
            reason=reason,
            dead=dead,
            headers=headers,
        )
    if outcome is Outcome.DONE:
        click.echo("done")
        return 0
    if outcome is Outcome.STALE:
        text = f"the lease {token} of {message_id} is over, or another one has followed"
        click.echo(f"dueq: {text}; nothing was changed", err=True)
    else:
        click.echo(f"dueq: {message_id}: {outcome.name.lower().replace('_', ' ')}", err=True)
    return 1

"""Messages that a command names: by their ids, or by their unique keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from dueq import MessageLeased, MessageNotFound, Outcome

key_option = click.option(
    "--key", "keys", metavar="TEXT", multiple=True,
    help="Instead of IDs, in a topic with unique keys: the message that bears this key; may be given many times.",
)  # fmt: skip
group_option = click.option(
    "--group", metavar="NAME", help="The group of a key, where a fair topic has several partitions."
)


def either(ids: Sequence[str], keys: Sequence[str]) -> Sequence[str]:
    """Return what names the messages.

    Raises:
        click.UsageError: nothing does, or both.
    """
    if bool(ids) == bool(keys):
        raise click.UsageError("Name messages by their IDs or by --key.")
    return ids or keys


def each(keys: Sequence[str], do: Callable[..., Any], group: str | None, **more: Any) -> list[Outcome]:
    """Do something to the message that each key names; returns the outcomes."""
    outcomes = []
    for key in keys:
        try:
            do(key=key, group=group, **more)
            outcomes.append(Outcome.DONE)
        except MessageLeased:
            outcomes.append(Outcome.LEASED)
        except MessageNotFound:
            outcomes.append(Outcome.NOT_FOUND)
    return outcomes

"""Messages that a command names: by their ids, or by their unique keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from dueq import DueqError, MessageLeased, MessageNotFound, Outcome, VersionDiffers

key_option = click.option(
    "--key", "keys", metavar="TEXT", multiple=True,
    help="Instead of IDs, in a topic with unique keys: the message with this key; may be given many times.",
)  # fmt: skip
group_option = click.option(
    "--group", metavar="NAME", help="The group of a key, where a fair topic has several partitions."
)


version_option = click.option(
    "--if-version", type=click.IntRange(1), metavar="VERSION",
    help="Only if the message has this version (see `dueq get`); name one message only.",
)  # fmt: skip


def versions(named: Sequence[str], if_version: int | None) -> list[int] | None:
    """Return the versions that the messages must have; None: any.

    Raises:
        click.UsageError: there are several messages, and one version.
    """
    if if_version is None:
        return None
    if len(named) != 1:
        raise click.UsageError(f"--if-version is for one message, and {len(named)} are named.")
    return [if_version]


def either(ids: Sequence[str], keys: Sequence[str]) -> Sequence[str]:
    """Return what names the messages.

    Raises:
        click.UsageError: nothing does, or both.
    """
    if bool(ids) == bool(keys):
        raise click.UsageError("Name messages by their IDs or by --key.")
    return ids or keys


def each(
    keys: Sequence[str], do: Callable[..., Any], group: str | None, **more: Any
) -> Sequence[Outcome | DueqError]:
    """Do something to the message that each key names; returns the outcomes.

    At an error it ends; if that is not the first, the error is the outcome of that key and those after it.
    """
    outcomes: list[Outcome | DueqError] = []
    for key in keys:
        try:
            do(key=key, group=group, **more)
            outcomes.append(Outcome.DONE)
        except MessageLeased:
            outcomes.append(Outcome.LEASED)
        except VersionDiffers:
            outcomes.append(Outcome.CHANGED)
        except MessageNotFound:
            outcomes.append(Outcome.NOT_FOUND)
        except DueqError as error:
            if not outcomes:
                raise
            return [*outcomes, *[error] * (len(keys) - len(outcomes))]
    return outcomes

"""The outcomes of the messages that a command named."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import click

from dueq import DueqError, Outcome, PartialFailure

_TEXT = {
    "done": "",
    "leased": "too late: a consumer has it",
    "not_found": "not found: delivered, cancelled, or never was",
    "dead": "dead: redrive or discard it",
    "changed": "it has another version",
    "unknown": "unknown: ask again",
}


def counted(messages: int) -> str:
    """Return a number of messages in words: 1 message, 1,200 messages."""
    return f"{messages:,} message{'' if messages == 1 else 's'}"


def known(do: Callable[..., Sequence[Outcome]], *columns: Any, **more: Any) -> Sequence[Outcome | DueqError]:
    """Do something to many messages; returns what became of each, or the error, also where only some could be asked."""
    try:
        return do(*columns, **more)
    except PartialFailure as failure:
        return failure.outcomes


def report(ids: Sequence[str], outcomes: Sequence[Outcome | DueqError], done: str, as_json: bool) -> int:
    """Print one line per message.

    Args:
        ids: the messages.
        outcomes: one for each, or the error that kept it from being known.
        done: the word for success.
        as_json: whether to print one JSON object a line.

    Returns:
        The exit code: 1 if any of them was not done.
    """
    code = 0
    for message_id, outcome in zip(ids, outcomes, strict=True):
        name = outcome.name.lower() if isinstance(outcome, Outcome) else "failed"
        code = code if name == "done" else 1
        if isinstance(outcome, DueqError) and as_json:
            click.echo(json.dumps({"id": message_id, "outcome": name, "error": str(outcome)}))
        elif isinstance(outcome, DueqError):
            click.echo(f"{message_id} {name}: {outcome}")
        elif as_json:
            click.echo(json.dumps({"id": message_id, "outcome": name}))
        else:
            click.echo(f"{message_id} {done if name == 'done' else _TEXT.get(name, name)}")
    return code

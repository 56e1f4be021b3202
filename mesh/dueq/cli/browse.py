"""`dueq browse`."""

from __future__ import annotations

import base64
import heapq
import json
from collections.abc import Iterable
from datetime import datetime
from itertools import chain, islice
from typing import Any

import click
from rich.text import Text

from dueq import Client, ScheduledMessage
from dueq.cli.instants import instant
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.tables import new_table, print_table
from dueq.time_text import instant_text

_LIMIT = 20
_PAYLOAD_SHOWN_BYTES = 200


@click.command()
@click.argument("topic")
@click.option(
    "--from", "start", metavar="INSTANT", callback=instant,
    help="Only what waits until this instant or later: ISO 8601 with a zone, or Unix milliseconds.",
)  # fmt: skip
@click.option(
    "--until", "end", metavar="INSTANT", callback=instant,
    help="Only what waits until an instant before this one.",
)  # fmt: skip
@click.option(
    "--limit", "-n", type=click.IntRange(min=1), default=_LIMIT, show_default=True,
    help="Show this many, in the topic's order.",
)  # fmt: skip
@click.option("--payloads", is_flag=True, help="Show the payloads too.")
@json_option
@mesh_options
def browse(
    topic: str,
    start: int | datetime | None,
    end: int | datetime | None,
    limit: int,
    payloads: bool,
    as_json: bool,
    endpoint: tuple[str, ...],
    timeout: float,
) -> None:
    """Show the messages of TOPIC that wait, without leasing or changing any.

    The soonest come first; in a priority topic, those with the smallest rank. Messages that a consumer holds are not
    shown.
    """
    with connect(endpoint, timeout) as client:
        found = _next(client, topic, start, end, payloads, limit + 1)
    more, found = len(found) > limit, found[:limit]
    if as_json:
        for message in found:
            click.echo(json.dumps(document_of(message, payloads), ensure_ascii=False))
    elif found:
        _print(topic, found, payloads, more)
    else:
        click.echo(
            f"nothing waits in {topic}" + (" in that time" if start is not None or end is not None else "")
        )


def _next(
    client: Client,
    topic: str,
    start: int | datetime | None,
    end: int | datetime | None,
    payloads: bool,
    count: int,
) -> list[ScheduledMessage]:
    """The first `count` messages over all partitions.

    A partition shows its messages in this order, so at most `count` are read of each; one of a fair topic shows one
    group after the other, and is read to its end.
    """
    info = client.describe(topic)
    found: list[ScheduledMessage] = []
    for partition in range(info.partitions):
        messages: Iterable[ScheduledMessage] = client.browse(
            topic, start=start, end=end, payloads=payloads, partitions=[partition]
        )
        if info.kind != "fair":
            messages = _first(messages, count, found)
        found = heapq.nsmallest(count, chain(found, messages), key=_order)
    return found


def _first(
    messages: Iterable[ScheduledMessage], count: int, known: list[ScheduledMessage]
) -> list[ScheduledMessage]:
    """The messages of one partition that can be among the first `count`, in order."""
    last = _order(known[-1]) if len(known) == count else None
    taken = []
    for message in islice(messages, count):
        if last is not None and _order(message) > last:
            break
        taken.append(message)
    return taken


def _order(message: ScheduledMessage) -> tuple[int, int, str]:
    return message.rank, message.waits_until, message.id


def _print(topic: str, found: list[ScheduledMessage], payloads: bool, more: bool) -> None:
    title = f"{topic}: the first {len(found):,} that wait" if more else f"{topic}: {len(found):,} waiting"
    ranked, grouped = any(message.rank for message in found), any(message.group for message in found)
    columns = ["id", "waits until", "key", "|payload" if payloads else ">bytes"]
    headed = any(message.headers for message in found)
    more_columns = [
        *(["headers"] if headed else []),
        *(["group"] if grouped else []),
        *([">rank"] if ranked else []),
    ]
    shown = new_table(title, *columns, *more_columns)
    for message in found:
        last = _preview(message) if payloads else f"{message.size:,}"
        row: list[str | Text] = [message.id, instant_text(message.waits_until), Text(message.key), Text(last)]
        row += [Text(_headers_text(message))] if headed else []
        row += [Text(message.group)] if grouped else []
        shown.add_row(*row, *([str(message.rank)] if ranked else []))
    print_table(shown, id=26, waits_until=24)


def _preview(message: ScheduledMessage) -> str:
    """The beginning of a payload, in one line."""
    if message.payload is None:
        return "(cannot be read)"
    return _in_one_line(message.payload[:_PAYLOAD_SHOWN_BYTES].decode("utf-8", "backslashreplace"))


def _headers_text(message: ScheduledMessage) -> str:
    text = ", ".join(f"{name}={value}" for name, value in message.headers.items())
    return _in_one_line(text[:_PAYLOAD_SHOWN_BYTES])


def _in_one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def document_of(message: ScheduledMessage, payloads: bool) -> dict[str, Any]:
    """Return what JSON says of a message."""
    document: dict[str, Any] = {
        "id": message.id, "topic": message.topic, "partition": message.partition, "key": message.key,
        "due": message.due, "waits_until": message.waits_until, "size": message.size, "attempt": message.attempt,
        "rank": message.rank, "version": message.version, "headers": message.headers,
        "group": message.group,
    }  # fmt: skip
    if payloads and message.payload is not None:
        try:
            document["payload"] = message.payload.decode("utf-8")
        except UnicodeDecodeError:
            document["payload_base64"] = base64.b64encode(message.payload).decode("ascii")
    return document

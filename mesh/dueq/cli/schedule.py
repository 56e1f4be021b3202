"""`dueq schedule`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import BinaryIO

import click

from dueq.cli.instants import chosen_due, due_options
from dueq.cli.options import connect, json_option, mesh_options
from dueq.limits import RANK_MAX

_LINES_PER_CALL = 4096


@click.command()
@click.argument("topic")
@click.argument("payload", default="-")
@due_options
@click.option("--key", metavar="TEXT", help="Name the message (each of them, with --lines).")
@click.option(
    "--rank",
    type=click.IntRange(0, RANK_MAX),
    help="Of a priority topic: the smallest goes first. Default: 0.",
)
@click.option("--lines", is_flag=True, help="Every line of the input is a message.")
@json_option
@mesh_options
def schedule(
    topic: str,
    payload: str,
    at: int | datetime | None,
    after: timedelta | None,
    key: str | None,
    rank: int | None,
    lines: bool,
    as_json: bool,
    endpoint: tuple[str, ...],
    timeout: float,
) -> None:
    """Schedule PAYLOAD in TOPIC and print the message's id, once it is safe.

    PAYLOAD is the text itself, @FILE for a file's content (@@text for a text that begins with @), or - for
    standard input, which is also the default.
    """
    due = chosen_due(at, after)
    if lines and payload != "-" and (not payload.startswith("@") or payload.startswith("@@")):
        raise click.UsageError("--lines reads standard input or @FILE.")
    with connect(endpoint, timeout) as client, client.producer(topic) as producer:
        if not lines:
            _print([producer.schedule(_content(payload), due, key=key, rank=rank)], as_json)
            return
        with _input(payload) as source:
            for batch in _batches(source):
                keys = None if key is None else [key] * len(batch)
                _print(producer.schedule_many(batch, [due] * len(batch), keys=keys, ranks=rank), as_json)


def _print(ids: list[str], as_json: bool) -> None:
    for message_id in ids:
        click.echo(json.dumps({"id": message_id}) if as_json else message_id)


def _content(payload: str) -> bytes:
    if payload.startswith("@@"):
        return payload[1:].encode("utf-8", "surrogateescape")
    if payload == "-" or payload.startswith("@"):
        with _input(payload) as source:
            return source.read()
    return payload.encode("utf-8", "surrogateescape")


def _input(payload: str) -> BinaryIO:
    if payload == "-":
        return click.open_file("-", "rb")  # type: ignore[return-value]
    try:
        return open(payload[1:], "rb")
    except OSError as error:
        raise click.FileError(payload[1:], error.strerror or str(error)) from error


def _batches(source: BinaryIO) -> Iterator[list[bytes]]:
    lines = (line.rstrip(b"\r\n") for line in source)
    while batch := list(islice(lines, _LINES_PER_CALL)):
        yield batch

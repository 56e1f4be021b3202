"""`dueq schedule`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, BinaryIO

import click

from dueq import Client, DueqError, KeyTaken, MessageNotFound, PartialFailure, Producer
from dueq.cli.headers import header_option
from dueq.cli.instants import chosen_due, due_options, duration, instant_or_duration
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.payloads import content_of, opened
from dueq.ids import first_instant
from dueq.limits import RANK_MAX
from dueq.time_text import instant_text
from dueq_codecs.records import ATTEMPTS_MAX

_LINES_PER_CALL = 4096


@click.command()
@click.argument("topic")
@click.argument("payload", default="-")
@due_options
@click.option("--key", metavar="TEXT", help="The key of the message (of each, with --lines).")
@click.option(
    "--rank",
    type=click.IntRange(0, RANK_MAX),
    help="The message's rank, in a priority or fair topic: the smallest goes first. Default: 0.",
)
@click.option(
    "--group",
    metavar="NAME",
    help="The message's group, in a fair topic, such as acme.reports: groups take turns.",
)
@header_option("the message (each of them, with --lines)")
@click.option(
    "--window",
    metavar="DURATION",
    callback=duration,
    help="Let the mesh choose an instant up to this much later: 30s, 10m.",
)
@click.option(
    "--expires", metavar="WHEN", callback=instant_or_duration,
    help="Do not deliver it after this: an instant as with --at, or a time from now as with --in.",
)  # fmt: skip
@click.option(
    "--max-attempts", type=click.IntRange(1, ATTEMPTS_MAX),
    help="How often it is delivered before it is dead. Default: as the topic says.",
)  # fmt: skip
@click.option(
    "--body",
    metavar="TEXT",
    help="One payload, stored once, for many messages: every line of the input is a key.",
)
@click.option(
    "--on-duplicate", type=click.Choice(("refuse", "keep", "replace")),
    help="What to do when a unique key already names a message. Default: refuse.",
)  # fmt: skip
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
    group: str | None,
    headers: dict[str, str] | None,
    window: timedelta | None,
    expires: int | datetime | timedelta | None,
    max_attempts: int | None,
    body: str | None,
    on_duplicate: str | None,
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
    if body is not None and (lines or key is not None):
        raise click.UsageError("With --body every line of the input is a key: neither --lines nor --key.")
    if (
        (lines or body is not None)
        and payload != "-"
        and (not payload.startswith("@") or payload.startswith("@@"))
    ):
        raise click.UsageError(f"--{'lines' if lines else 'body'} reads standard input or @FILE.")
    if body == payload == "-":
        raise click.UsageError("--body and the keys cannot both be the standard input: name a file, @FILE.")
    with connect(endpoint, timeout) as client, client.producer(topic) as producer:
        if body is not None:
            shared = producer.body(content_of(body))
            with opened(payload) as source:
                for batch in _batches(source):
                    _schedule_many(
                        producer, as_json, [shared] * len(batch), [due] * len(batch), ranks=rank, groups=group,
                        keys=[line.decode("utf-8", "surrogateescape") for line in batch], headers=headers,
                        window=window, expires=expires, max_attempts=max_attempts, on_duplicate=on_duplicate,
                    )  # fmt: skip
            return
        if not lines:
            try:
                message_id = producer.schedule(
                    content_of(payload), due, key=key, rank=rank, group=group, headers=headers, window=window,
                    expires=expires, max_attempts=max_attempts, on_duplicate=on_duplicate,
                )  # fmt: skip
            except KeyTaken as taken:
                raise _said_of_key(client, topic, key, taken) from taken
            _print([message_id], as_json)
            return
        with opened(payload) as source:
            for batch in _batches(source):
                keys = None if key is None else [key] * len(batch)
                _schedule_many(
                    producer, as_json, batch, [due] * len(batch), keys=keys, ranks=rank, groups=group, headers=headers,
                    window=window, expires=expires, max_attempts=max_attempts, on_duplicate=on_duplicate,
                )  # fmt: skip


def _said_of_key(client: Client, topic: str, key: str | None, taken: KeyTaken) -> KeyTaken:
    """Say of a key that is taken which one it is, and whether its message still lives."""
    if taken.present is None:
        return KeyTaken(f"key {key!r} of {topic} names a message of a job that is not committed yet")
    try:
        lives = client.get(topic, taken.present).state != "dead"
    except MessageNotFound:
        lives = False
    except DueqError:
        # It could not be asked now; what was refused is known all the same.
        lives = True
    text = f"key {key!r} of {topic} names message {taken.present}, due at {instant_text(taken.due)}"
    if not lives:
        text += ", which is finished: the key stays taken for as long as the topic remembers it"
    return KeyTaken(text, taken.present, taken.due)


def _schedule_many(producer: Producer, as_json: bool, *columns: Any, **more: Any) -> None:
    """Schedule messages and print their ids; if some were not scheduled, still those of the others."""
    try:
        _print(producer.schedule_many(*columns, **more), as_json)
    except PartialFailure as failure:
        _print([outcome for outcome in failure.outcomes if isinstance(outcome, str)], as_json)
        raise


def _print(ids: Sequence[str], as_json: bool) -> None:
    for message_id in ids:
        document = {"id": message_id, "first_instant": first_instant(message_id)}
        click.echo(json.dumps(document) if as_json else message_id)


def _batches(source: BinaryIO) -> Iterator[list[bytes]]:
    lines = (line.rstrip(b"\r\n") for line in source)
    while batch := list(islice(lines, _LINES_PER_CALL)):
        yield batch

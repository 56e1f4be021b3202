"""`dueq consume`."""

from __future__ import annotations

import base64
import json
import signal
import sys
import threading
import time
from typing import Any

import click

from dueq import Message
from dueq.cli.options import connect, mesh_options
from dueq.limits import CONSUMER_LEASES_MAX

_RECEIVE_S = 0.5
_BATCH = 256


@click.command()
@click.argument("topic")
@click.option("--count", "-n", type=click.IntRange(min=1), help="End after this many messages.")
@click.option(
    "--idle", type=click.FloatRange(min=0), metavar="SECONDS", help="End when no message came for this long."
)
@click.option(
    "--ack/--no-ack", default=True, show_default=True,
    help="Whether printed messages are done; otherwise they are given back at the end.",
)  # fmt: skip
@click.option(
    "--format", "style", type=click.Choice(["text", "base64", "json"]), default="text", show_default=True,
    help="The payload as text or base64, one a line; or all about the message as JSON, one object a line.",
)  # fmt: skip
@click.option("--keys", "with_key", is_flag=True, help="Put each message's key and a tab before its payload.")
@click.option("--ranks", "with_rank", is_flag=True, help="Put each message's rank and a tab first.")
@click.option(
    "--headers",
    "with_headers",
    is_flag=True,
    help="Put each message's headers, as JSON, and a tab first.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--lease", type=click.FloatRange(min=0.1), default=30.0, show_default=True, metavar="SECONDS",
    help="How long a message is ours before another consumer may have it.",
)  # fmt: skip
@click.option(
    "--credit", type=click.IntRange(min=1), default=256, show_default=True,
    help="How many unfinished messages to hold at most.",
)  # fmt: skip
@mesh_options
def consume(
    topic: str,
    count: int | None,
    idle: float | None,
    ack: bool,
    style: str,
    with_key: bool,
    with_rank: bool,
    with_headers: bool,
    as_json: bool,
    lease: float,
    credit: int,
    endpoint: tuple[str, ...],
    timeout: float,
) -> None:
    """Print the messages of TOPIC as they fall due, until interrupted."""
    style = "json" if as_json else style
    if count:
        # Messages leased beyond the wanted number would be late for others; kept ones need credit.
        credit = min(count, credit) if ack else min(count, CONSUMER_LEASES_MAX)
    left = count
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: ending.set())
    with (
        connect(endpoint, timeout) as client,
        client.consumer(topic, lease=lease, credit=credit, on_lease_lost=_lost) as consumer,
    ):
        last = time.monotonic()
        while not ending.is_set() and (left is None or left > 0):
            batch = consumer.receive(max_messages=min(_BATCH, left or _BATCH), timeout=_RECEIVE_S)
            if batch:
                received_at_ms = time.time_ns() / 1e6
                for message in batch:
                    click.echo(_line(message, style, with_key, with_rank, with_headers, received_at_ms))
                    if ack:
                        # Sent in batches, repeated until confirmed; leaving the `with` waits for that.
                        message.ack()
                sys.stdout.flush()
                last = time.monotonic()
                left = None if left is None else left - len(batch)
            elif idle is not None and time.monotonic() - last >= idle:
                return


def _lost(message: Message) -> None:
    click.echo(
        f"dueq: the lease of {message.id} was over before its ack was confirmed; it may come again", err=True
    )


def _line(
    message: Message, style: str, with_key: bool, with_rank: bool, with_headers: bool, received_at_ms: float
) -> str | bytes:
    payload = bytes(message.payload)
    if style == "json":
        return json.dumps(_document(message, payload, received_at_ms), ensure_ascii=False)
    columns = [b"%d" % message.rank] if with_rank else []
    columns += [message.key.encode()] if with_key else []
    columns += [json.dumps(message.headers, ensure_ascii=False).encode()] if with_headers else []
    return b"\t".join([*columns, payload if style == "text" else base64.b64encode(payload)])


def _document(message: Message, payload: bytes, received_at_ms: float) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": message.id, "topic": message.topic, "key": message.key, "due": message.due,
        "released_at": message.released_at, "received_at": round(received_at_ms, 3),
        "attempt": message.attempt, "token": message.token, "rank": message.rank, "version": message.version,
        "headers": message.headers,
    }  # fmt: skip
    try:
        document["payload"] = payload.decode("utf-8")
    except UnicodeDecodeError:
        document["payload_base64"] = base64.b64encode(payload).decode("ascii")
    return document

"""`dueq consume`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import click

from dueq import Consumer, Message
from dueq.cli.delivered import line, line_options
from dueq.cli.options import Seconds, connect, mesh_options
from dueq.limits import CONSUMER_LEASES_MAX

_RECEIVE_S = 0.5
_BATCH = 256


@click.command()
@click.argument("topic")
@click.option("--count", "-n", type=click.IntRange(min=1), help="End after this many messages.")
@click.option(
    "--idle", type=Seconds(min=0), metavar="SECONDS", help="End when no message came for this long."
)
@click.option(
    "--ack/--no-ack", default=True, show_default=True,
    help="Finish messages once they are printed, or give them back at the end.",
)  # fmt: skip
@line_options
@click.option(
    "--lease", type=Seconds(min=0.1), default=30.0, show_default=True, metavar="SECONDS",
    help="How long a message is leased; after that another consumer may have it.",
)  # fmt: skip
@click.option(
    "--credit", type=click.IntRange(min=1), default=256, show_default=True,
    help="How many unfinished messages to hold at most.",
)  # fmt: skip
@click.option(
    "--name",
    help="The consumer's name. If this process dies, the next of this name gets its unfinished messages at once.",
)
@click.option(
    "--ack-on-receipt", is_flag=True,
    help="Finish each message before it is printed: it comes at most once, and may be lost.",
)  # fmt: skip
@click.option(
    "--detached", is_flag=True,
    help="Leases last their whole length, even if this process falls silent or dies.",
)  # fmt: skip
@click.option(
    "--drain", type=Seconds(0, 86_400), default=10.0, show_default=True, metavar="SECONDS",
    help="How long printing may take after SIGTERM; what is not printed then is given back.",
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
    with_group: bool,
    with_headers: bool,
    as_json: bool,
    lease: float,
    credit: int,
    name: str | None,
    ack_on_receipt: bool,
    detached: bool,
    drain: float,
    endpoint: tuple[str, ...],
    timeout: float,
) -> None:
    """Print the messages of TOPIC as they fall due, until interrupted."""
    style = "json" if as_json else style
    if count:
        # Messages leased beyond the wanted number would be late for others; kept ones need credit.
        credit = min(count, credit) if ack else min(count, CONSUMER_LEASES_MAX)
    left = count
    if ack_on_receipt and not ack:
        raise click.UsageError("Give --ack-on-receipt or --no-ack, not both.")
    ending, ended = threading.Event(), threading.Event()
    how = "on_receipt" if ack_on_receipt else "manual"
    with (
        connect(endpoint, timeout) as client,
        client.consumer(
            topic, lease=lease, credit=credit, on_lease_lost=_lost, ack=how, name=name, detached=detached
        ) as consumer,
    ):
        threading.Thread(target=_end_in_time, args=(ending, ended, drain, consumer), daemon=True).start()
        signal.signal(signal.SIGTERM, lambda _number, _frame: ending.set())
        last = time.monotonic()
        try:
            while not ending.is_set() and (left is None or left > 0):
                batch = consumer.receive(max_messages=min(_BATCH, left or _BATCH), timeout=_RECEIVE_S)
                if batch:
                    received_at_ms = time.time_ns() / 1e6
                    for message in batch:
                        text = line(
                            message, style, with_key, with_rank, with_group, with_headers, received_at_ms
                        )
                        click.echo(text)
                        if ack and not ack_on_receipt:
                            # Sent in batches, repeated until confirmed; leaving the `with` waits for that.
                            message.ack()
                    sys.stdout.flush()
                    last = time.monotonic()
                    left = None if left is None else left - len(batch)
                elif idle is not None and time.monotonic() - last >= idle:
                    return
        finally:
            ended.set()
            ending.set()


def _end_in_time(ending: threading.Event, ended: threading.Event, drain: float, consumer: Consumer) -> None:
    """After a signal: should nobody read what is printed, give back what is left, and end."""
    ending.wait()
    if not ended.wait(drain):
        consumer.close()
        os.write(2, b"dueq: nobody has read all that was to be printed; the rest was given back\n")
        os._exit(1)


def _lost(message: Message) -> None:
    click.echo(
        f"dueq: the lease of {message.id} was over before its ack was confirmed; it may come again", err=True
    )

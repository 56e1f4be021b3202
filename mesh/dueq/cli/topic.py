"""`dueq topic`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

import click
from rich.text import Text

from dueq import Backoff, TopicInfo
from dueq.cli.asking import ask
from dueq.cli.group import SuggestingGroup
from dueq.cli.instants import duration, instant
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.tables import cleaned, new_console, new_table, print_table
from dueq.cli.topic_settings import settings_options
from dueq.cli.where import wait_for
from dueq.client.arguments import KINDS
from dueq.client.topics import PartitionInfo
from dueq.time_text import duration_text, instant_text

_PARTITIONS = 6
"""Of a timeline topic, unless asked otherwise. Between partitions of the other kinds there may be no order."""


_DEAD_RETENTION = timedelta(days=14)
"""Of a new topic."""


@click.group(cls=SuggestingGroup)
def topic() -> None:
    """Create, list, describe, change and delete topics."""


@topic.command()
@click.argument("name")
@click.option(
    "--kind", type=click.Choice(KINDS), default="timeline", show_default=True,
    help="The order in which due messages leave: the soonest first, by rank, or groups by turns.",
)  # fmt: skip
@click.option(
    "--partitions",
    "-p",
    type=int,
    help="How many parts work in parallel. Default: 6; 1 of other kinds than timeline.",
)
@click.option(
    "--replicas",
    "-r",
    type=int,
    help="Copies of every message. Default: 3, or the number of brokers if there are fewer.",
)
@click.option("--min-isr", type=int, help="Copies that must be synced. Default: more than half.")
@click.option(
    "--keys",
    type=click.Choice(("free", "unique")),
    help="Whether a key names one message at most. Default: free.",
)
@click.option(
    "--rate",
    type=float,
    help="Deliver at most this many messages a second; for a topic of one partition. Default: no limit.",
)
@click.option(
    "--burst", type=int, help="Deliver at most this many of them at once. Default: as many as in a second."
)
@settings_options
@click.option("--exist-ok", is_flag=True, help="Succeed if the topic exists already.")
@mesh_options
def create(
    name: str,
    kind: str,
    partitions: int | None,
    replicas: int | None,
    min_isr: int | None,
    keys: str | None,
    rate: float | None,
    burst: int | None,
    exist_ok: bool,
    endpoint: tuple[str, ...],
    timeout: float,
    **settings: Any,
) -> None:
    """Create the topic NAME; returns when all its partitions have a leader."""
    if partitions is None:
        partitions = _PARTITIONS if kind == "timeline" else 1
    with connect(endpoint, timeout) as client:
        client.create_topic(
            name, kind, partitions, replicas, min_isr=min_isr, keys=keys, rate=rate, burst=burst, exist_ok=exist_ok,
            **settings,
        )  # fmt: skip
    # An earlier topic may have other settings than those that were given here.
    click.echo(f"{name} exists" if exist_ok else f"created {name}")


@topic.command("list")
@json_option
@mesh_options
def list_(as_json: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """List the topics."""
    with connect(endpoint, timeout) as client:
        topics = sorted(client.topics(), key=lambda info: info.name)
    if as_json:
        click.echo(json.dumps([_document(info) for info in topics]))
        return
    if not topics:
        click.echo("no topics yet: dueq topic create NAME")
        return
    shown = new_table("", "topic", "kind", ">partitions", ">replicas")
    for info in topics:
        shown.add_row(info.name, info.kind, str(info.partitions), str(info.replicas))
    print_table(shown)


def _counts(part: PartitionInfo) -> tuple[int | None, ...]:
    return part.scheduled, part.ready, part.leased, part.dead


def _leader(part: PartitionInfo) -> Text:
    if part.serving:
        return Text(part.leader)
    return Text(part.leader).append(" (not yet)", "yellow") if part.leader else Text("none", "red")


@topic.command()
@click.argument("name")
@json_option
@mesh_options
def describe(name: str, as_json: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """Show the topic NAME: its settings and where its partitions are."""
    with connect(endpoint, timeout) as client:
        info = client.describe(name)
    if as_json:
        click.echo(json.dumps(_document(info)))
        return
    horizon = f", at most {duration_text(info.horizon)} ahead" if info.horizon else ""
    title = (
        f"{info.name}: {info.kind}, replicas: {info.replicas}, at least {info.min_isr} in sync, "
        f"payloads up to {info.payload_bytes_max:,} bytes{horizon}, settings of version {info.settings_version}"
    )
    console = new_console()
    console.print(title, highlight=False)
    if info.paused and (info.paused_until is None or info.paused_until > datetime.now(UTC)):
        until = (
            f"until {instant_text(round(info.paused_until.timestamp() * 1000))}"
            if info.paused_until
            else "until it is resumed"
        )
        console.print(f"[yellow]paused[/] {until}", highlight=False)
    if info.rate:
        console.print(
            f"at most {info.rate:,} messages a second, {info.burst or ceil(info.rate):,} at once",
            highlight=False,
        )
    for setting, text in _unusual(info):
        console.print(f"{setting} {text}", highlight=False, markup=False)
    for label, text in sorted(info.labels.items()):
        console.print(cleaned(f"label {label}: {text}"), highlight=False, markup=False, emoji=False)
    if info.home_partitions < info.partitions:
        console.print(f"jobs are decided by the first {info.home_partitions} partitions", highlight=False)
    shown = new_table(
        "", ">part", "leader", ">epoch", "in sync", "replicas", ">scheduled", ">ready", ">leased", ">dead"
    )
    for part in info.placement:
        shown.add_row(
            str(part.index), _leader(part), str(part.epoch), " ".join(part.isr), " ".join(part.replicas),
            *("–" if count is None else f"{count:,}" for count in _counts(part)),
        )  # fmt: skip
    print_table(shown, console)


def _unusual(info: TopicInfo) -> Iterator[tuple[str, str]]:
    """Yield the settings that are not as in a new topic, by their options."""
    if info.keys != "free":
        yield "keys", info.keys
    if info.remember:
        yield "remember", duration_text(info.remember)
    if info.max_attempts:
        yield "max-attempts", f"{info.max_attempts}"
    if info.backoff is not None:
        yield "backoff", _backoff_text(info.backoff)
    if info.expired != "finish":
        yield "expired", info.expired
    if info.dead_retention != _DEAD_RETENTION:
        yield "dead-retention", duration_text(info.dead_retention)


def _backoff_text(backoff: Backoff) -> str:
    first, longest = (
        duration_text(each if isinstance(each, timedelta) else timedelta(seconds=each))
        for each in (backoff.first, backoff.longest)
    )
    text = f"{first},factor={backoff.factor:g},longest={longest},jitter={backoff.jitter:g}"
    return text if backoff.doublings is None else f"{text},doublings={backoff.doublings}"


@topic.command()
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@mesh_options
def delete(name: str, yes: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """Delete the topic NAME with all its messages."""
    if not yes and sys.stdin.isatty():
        ask(f"Delete {name} with all its messages?")
    with connect(endpoint, timeout) as client:
        client.delete_topic(name)
    click.echo(f"deleted {name}")


@topic.command()
@click.argument("name")
@click.option("--partitions", "-p", type=int, help="The new number of partitions; it never gets smaller.")
@click.option(
    "--rate",
    type=float,
    help="Deliver at most this many messages a second; for a topic of one partition. 0: no limit.",
)
@click.option(
    "--burst", type=int, help="Deliver at most this many of them at once; 0: as many as in a second."
)
@click.option(
    "--if-version",
    type=int,
    help="Only if the topic's settings have this version (see `dueq topic describe`).",
)
@settings_options
@mesh_options
def update(
    name: str,
    partitions: int | None,
    rate: float | None,
    burst: int | None,
    if_version: int | None,
    endpoint: tuple[str, ...],
    timeout: float,
    **settings: Any,
) -> None:
    """Change the topic NAME; returns when all its partitions apply the change."""
    with connect(endpoint, timeout) as client:
        client.update_topic(
            name, partitions=partitions, rate=rate, burst=burst, if_version=if_version, **settings
        )
    click.echo(f"updated {name}")


@topic.command()
@click.argument("name")
@click.option(
    "--until", metavar="INSTANT", callback=instant,
    help="Resume by itself at this instant: ISO 8601 with a zone, or Unix milliseconds.",
)  # fmt: skip
@click.option(
    "--for", "for_", metavar="DURATION", callback=duration,
    help="Resume by itself after this long: 10m, 1h30m.",
)  # fmt: skip
@mesh_options
def pause(
    name: str,
    until: int | datetime | None,
    for_: timedelta | None,
    endpoint: tuple[str, ...],
    timeout: float,
) -> None:
    """Stop the delivery of the topic NAME. It still takes new messages."""
    if until is not None and for_ is not None:
        raise click.UsageError("Give --until or --for, not both.")
    with connect(endpoint, timeout) as client:
        client.pause(name, until if until is not None else for_)
    click.echo(f"paused {name}")


@topic.command()
@click.argument("name")
@mesh_options
def resume(name: str, endpoint: tuple[str, ...], timeout: float) -> None:
    """End the pause of the topic NAME."""
    with connect(endpoint, timeout) as client:
        client.resume(name)
    click.echo(f"resumed {name}")


@topic.command()
@click.argument("name")
@click.option(
    "--state", type=click.Choice(("waiting", "dead", "all")), default="waiting", show_default=True,
    help="Which messages: waiting ones, dead ones, or both.",
)  # fmt: skip
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@mesh_options
def purge(name: str, state: str, yes: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """Cancel all waiting or dead messages of the topic NAME."""
    with connect(endpoint, timeout) as client:
        if not yes and sys.stdin.isatty():
            info = client.describe(name)
            counts = {"waiting": (info.scheduled or 0) + (info.ready or 0), "dead": info.dead or 0}
            count = counts[state] if state in counts else sum(counts.values())
            which = {"waiting": "that wait", "dead": "that are dead"}.get(state, "that wait or are dead")
            ask(f"Cancel all messages of {name} {which}, about {count:,}?")
        work = client.purge(name, state, wait=False)
        wait_for(work)
    click.echo(f"purged {name}: {work.done:,} cancelled, {work.skipped.get('leased', 0):,} with a consumer")


def _document(info: TopicInfo) -> dict[str, Any]:
    def ms(length: timedelta) -> int:
        return length // timedelta(milliseconds=1)

    return dataclasses.asdict(info) | {
        "horizon": ms(info.horizon) if info.horizon else None,
        "paused_until": info.paused_until.isoformat() if info.paused_until else None,
        "dead_retention": ms(info.dead_retention),
        "remember": ms(info.remember),
    }

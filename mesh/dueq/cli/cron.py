"""`dueq cron`."""

from __future__ import annotations

import dataclasses
import json
import re
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from dueq import Client, DueqError, RecurrenceInfo
from dueq.cli.group import SuggestingGroup
from dueq.cli.headers import header_option
from dueq.cli.instants import parse_duration, parse_instant
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.payloads import content_of
from dueq.cli.tables import new_table, print_table
from dueq.client import recurrences
from dueq.client.core.ports.shared_body import SharedBody
from dueq.client.payloads import shared_body
from dueq.errors import RecurrenceNotFound
from dueq.limits import MISSED_TICKS_MAX
from dueq.recurring.terms import Terms
from dueq.recurring.ticks import ticks_after
from dueq.time_text import duration_text, instant_text

_Function = TypeVar("_Function", bound=Callable[..., Any])

TICKS_SHOWN = 10


@click.group(cls=SuggestingGroup)
def cron() -> None:
    """Create, show, change and delete recurrences: messages that are made again and again."""


def _terms_options(function: _Function) -> _Function:
    """Add what a recurrence says; the function gets `said`, the arguments of the client's call."""
    options = [
        click.option("--cron", "line", metavar="LINE", help="A cron line: five fields, or six with the seconds first."),
        click.option("--every", metavar="DURATION", help="A period: 10s, 5m, 1h30m; from --start, or from now on."),
        click.option("--at", multiple=True, metavar="INSTANT", help="An instant; may be given several times."),
        click.option("--zone", metavar="NAME", help="The line's time zone, as Europe/Berlin.  [default: UTC]"),
        click.option("--start", metavar="INSTANT", help="No tick before this."),
        click.option("--end", metavar="INSTANT", help="No tick at or after this."),
        click.option("--jitter", metavar="DURATION", help="Delay each message after its tick by up to this long."),
        click.option("--missed", metavar="none|last|all|N", help="Missed ticks to make up for.  [default: last]"),
        click.option("--overlap", metavar="allow|skip", help="A tick while a message is unfinished.  [default: allow]"),
        click.option("--rank", type=int, help="Rank of its messages, in a priority or fair topic."),
        click.option("--group", help="Group of its messages, in a fair topic."),
    ]  # fmt: skip
    for option in reversed([*options, header_option("its messages")]):
        function = option(function)
    return function


_body_option = click.option(
    "--body",
    metavar="TEXT",
    help="A shared body in place of a payload; @FILE and - as for PAYLOAD of `create`.",
)


def _content(payload: str | None, body: str | None) -> bytes | SharedBody | None:
    """Return what was said of the payload; None: nothing."""
    if payload is not None and body is not None:
        raise click.UsageError("a recurrence has a payload of its own, or a shared body (--body)")
    if body is not None:
        return shared_body(content_of(body))
    return content_of(payload) if payload is not None else None


def _said(
    line: str | None, every: str | None, at: tuple[str, ...], zone: str | None, start: str | None, end: str | None,
    jitter: str | None, missed: str | None, overlap: str | None, headers: dict[str, str] | None,
    rank: int | None, group: str | None,
) -> dict[str, Any]:  # fmt: skip
    """Return the options that were given, as the arguments of the client's calls."""
    found = {
        "cron": line,
        "every": parse_duration(every, "--every") if every is not None else None,
        "at": [parse_instant(text) for text in at] or None,
        "zone": zone,
        "start": parse_instant(start, "--start") if start is not None else None,
        "end": parse_instant(end, "--end") if end is not None else None,
        "jitter": parse_duration(jitter, "--jitter") if jitter is not None else None,
        "missed": int(missed) if missed is not None and re.fullmatch(r"\d{1,9}", missed) else missed,
        "overlap": overlap,
        "headers": headers,
        "rank": rank,
        "group": group,
    }
    return {name: value for name, value in found.items() if value is not None}


@cron.command()
@click.argument("topic")
@click.argument("name")
@click.argument("payload", default="")
@_body_option
@_terms_options
@click.option(
    "--dry-run",
    is_flag=True,
    help=f"Show the next {TICKS_SHOWN} ticks, without asking a broker: TOPIC and NAME are not looked at.",
)
@json_option
@mesh_options
def create(
    topic: str, name: str, payload: str, body: str | None, dry_run: bool, as_json: bool, endpoint: tuple[str, ...],
    timeout: float, **options: Any,
) -> None:  # fmt: skip
    """Create the recurrence NAME in TOPIC; each of its messages has PAYLOAD.

    PAYLOAD is the text itself, @FILE for a file's content (@@text for a text that begins with @), or - for standard
    input.
    """
    said = _said(**options)
    if dry_run:
        _show_ticks(said, name, as_json)
        return
    content = _content(payload or None, body)
    with connect(endpoint, timeout) as client:
        client.create_recurrence(topic, name, payload=content or b"", **said)
        found, next_tick = _looked_at(client, topic, name)
    if not as_json:
        click.echo(f"created {name}; next tick {next_tick}")
        return
    click.echo(json.dumps(_document(found) if found is not None else None))
    if found is None:
        click.echo(f"dueq: created {name}; next tick {next_tick}", err=True)


def _looked_at(client: Client, topic: str, name: str) -> tuple[RecurrenceInfo | None, str]:
    """Return a recurrence that has just been changed and its next tick, or why that is not known."""
    try:
        found = client.recurrence(topic, name)
    except DueqError as error:  # what the command is for is done
        return None, f"unknown: {error}"
    return found, _next_text(found)


def _show_ticks(said: dict[str, Any], name: str, as_json: bool) -> None:
    """Print the next ticks, by this machine's clock."""
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    document = recurrences.said(*(said.get(word) for word in recurrences.WORDS))
    terms = recurrences.checked(document, now_ms)
    ticks = list(islice(ticks_after(terms, terms.start_ms or now_ms, now_ms), TICKS_SHOWN))
    if as_json:
        click.echo(json.dumps(ticks))
        return
    for tick in ticks:
        click.echo(_tick_text(tick, terms))


def _tick_text(tick: int, terms: Terms | RecurrenceInfo) -> str:
    """Return a tick in UTC and, with a cron line of a zone that is known here, as the clocks of that show it."""
    if not terms.cron or terms.zone == "UTC":
        return instant_text(tick)
    try:
        zone = ZoneInfo(terms.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return instant_text(tick)
    return f"{instant_text(tick)}  {datetime.fromtimestamp(tick / 1000, zone).isoformat()}"


def _next_text(found: RecurrenceInfo | None) -> str:
    return instant_text(found.next_ms) if found is not None and found.next_ms else "never"


@cron.command("list")
@click.argument("topic")
@json_option
@mesh_options
def list_(topic: str, as_json: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """List the recurrences of TOPIC by name."""
    with connect(endpoint, timeout) as client:
        found = client.recurrences(topic)
        if as_json:
            for info in found:
                click.echo(json.dumps(_document(info)))
            return
        shown = new_table("", "name", "when", "next", ">messages", ">unfinished", "state")
        rows = 0
        for info in found:
            rows += 1
            shown.add_row(
                info.name,
                _when(info),
                _next_text(info),
                f"{info.messages:,}",
                f"{info.unfinished:,}",
                _state(info),
            )
    if rows:
        print_table(shown, name=max(len(str(name)) for name in shown.columns[0].cells))
    else:
        click.echo(f"no recurrences in {topic}")


@cron.command()
@click.argument("topic")
@click.argument("name")
@json_option
@mesh_options
def show(topic: str, name: str, as_json: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """Show the recurrence NAME of TOPIC, with its next ticks."""
    with connect(endpoint, timeout) as client:
        info = client.recurrence(topic, name)
    if info is None:
        raise RecurrenceNotFound(f"topic {topic!r} has no recurrence {name!r}")
    if as_json:
        click.echo(json.dumps(_document(info)))
        return
    shown = new_table("", "recurrence", name)
    for word, text in (
        ("when", _when(info)),
        ("state", _state(info)),
        ("next tick", _tick_text(info.next_ms, info) if info.next_ms else "never"),
        ("last tick", instant_text(info.last_ms) if info.last_ms else "none"),
        ("jitter", f"{info.jitter_ms} ms"),
        ("missed ticks made up for", _missed_text(info.missed)),
        ("overlap", info.overlap),
        ("payload", f"{info.payload_bytes:,} bytes" + (f", shared body {info.body}" if info.body else "")),
        ("headers", ", ".join(f"{word}={text}" for word, text in info.headers.items()) or "none"),
        ("rank", str(info.rank)),
        ("group", info.group or "none"),
        ("messages made", f"{info.messages:,}"),
        ("messages unfinished", f"{info.unfinished:,}"),
        ("times skipped", f"{info.skipped:,}"),
    ):
        shown.add_row(word, text)
    print_table(shown)


@cron.command()
@click.argument("topic")
@click.argument("name")
@_terms_options
@click.option(
    "--payload", metavar="TEXT", help="Of its messages from now on; @FILE and - as for PAYLOAD of `create`."
)
@_body_option
@mesh_options
def update(
    topic: str, name: str, payload: str | None, body: str | None, endpoint: tuple[str, ...], timeout: float,
    **options: Any,
) -> None:  # fmt: skip
    """Change the recurrence NAME of TOPIC; what is not given stays as it is."""
    content = _content(payload, body)
    with connect(endpoint, timeout) as client:
        client.update_recurrence(topic, name, payload=content, **_said(**options))
        _, next_tick = _looked_at(client, topic, name)
    click.echo(f"updated {name}; next tick {next_tick}")


@cron.command()
@click.argument("topic")
@click.argument("name")
@mesh_options
def pause(topic: str, name: str, endpoint: tuple[str, ...], timeout: float) -> None:
    """Let the recurrence NAME of TOPIC make no messages until it is resumed."""
    with connect(endpoint, timeout) as client:
        client.pause_recurrence(topic, name)
    click.echo(f"paused {name}")


@cron.command()
@click.argument("topic")
@click.argument("name")
@mesh_options
def resume(topic: str, name: str, endpoint: tuple[str, ...], timeout: float) -> None:
    """Let the recurrence NAME of TOPIC make messages again, from its next tick on."""
    with connect(endpoint, timeout) as client:
        client.resume_recurrence(topic, name)
        _, next_tick = _looked_at(client, topic, name)
    click.echo(f"resumed {name}; next tick {next_tick}")


@cron.command()
@click.argument("topic")
@click.argument("name")
@mesh_options
def trigger(topic: str, name: str, endpoint: tuple[str, ...], timeout: float) -> None:
    """Have the recurrence NAME of TOPIC make one message now, and print its id."""
    with connect(endpoint, timeout) as client:
        click.echo(client.trigger_recurrence(topic, name))


@cron.command()
@click.argument("topic")
@click.argument("name")
@mesh_options
def delete(topic: str, name: str, endpoint: tuple[str, ...], timeout: float) -> None:
    """Delete the recurrence NAME of TOPIC; messages whose instants have come stay."""
    with connect(endpoint, timeout) as client:
        client.delete_recurrence(topic, name)
    click.echo(f"deleted {name}")


def _document(info: RecurrenceInfo) -> dict[str, Any]:
    document = dataclasses.asdict(info)
    if info.payload is None:
        del document["payload"]
    else:
        document["payload"] = b64encode(info.payload).decode()
    return document


def _when(info: RecurrenceInfo) -> str:
    if info.cron:
        return f"{info.cron} ({info.zone})"
    if info.every_ms:
        return f"every {duration_text(timedelta(milliseconds=info.every_ms))}"
    return f"{len(info.at_ms)} instants"


def _missed_text(missed: int) -> str:
    """Return how many missed ticks are made up for, as `--missed` says it."""
    if missed >= MISSED_TICKS_MAX:
        return f"all (the latest {MISSED_TICKS_MAX})"
    return {0: "none", 1: "last"}.get(missed, f"the latest {missed}")


def _state(info: RecurrenceInfo) -> str:
    if info.paused:
        return "paused"
    return "waiting" if info.next_ms else "ended"

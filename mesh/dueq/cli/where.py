"""`dueq where`: all messages of a topic that match a filter."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import click

from dueq import Busy, Client, DueqError, Filter, OutcomeUnknown, Pass
from dueq.cli.asking import ask
from dueq.cli.instants import chosen_due, due_options, duration, instant, parse_duration
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.outcomes import counted
from dueq.client.filters import STATES
from dueq.client.passes import Progress, new_name

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _filter_options(function: _Function) -> _Function:
    for option in (
        click.option("--job", metavar="KEY", help="Messages of this job: its key, 32 hex digits."),
        click.option("--key-prefix", metavar="TEXT", help="Messages whose keys begin with this."),
        click.option("--group", metavar="NAME", help="Messages of this group, or of one below it."),
        click.option(
            "--due-from", metavar="INSTANT", callback=instant,
            help="Due at this instant or later: ISO 8601 with a zone, or Unix milliseconds.",
        ),
        click.option(
            "--due-until", metavar="INSTANT", callback=instant,
            help="Due before this instant.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def _work_options(function: _Function) -> _Function:
    function = click.option("--yes", "-y", is_flag=True, help="Do not ask.")(function)
    function = click.option(
        "--dry-run", "dry", is_flag=True, help="Show how many messages match, and change nothing."
    )(function)
    return click.option(
        "--name",
        metavar="NAME",
        help="The pass's name. The same command with the same name continues the pass.",
    )(function)


@click.group()
def where() -> None:
    """Count, cancel, move, change, redrive or discard all messages that match a filter."""


@where.command()
@click.argument("topic")
@_filter_options
@click.option(
    "--state", type=click.Choice(STATES), default="waiting", show_default=True, help="Messages in this state."
)
@json_option
@mesh_options
def count(topic: str, as_json: bool, endpoint: tuple[str, ...], timeout: float, **wanted: Any) -> None:
    """Count the messages of TOPIC that wait, or are dead, and match."""
    with connect(endpoint, timeout) as client:
        found = client.count_where(topic, Filter(**wanted))
    click.echo(json.dumps({"count": found}) if as_json else f"{found}")


@where.command()
@click.argument("topic")
@_filter_options
@_work_options
@mesh_options
def cancel(
    topic: str,
    yes: bool,
    dry: bool,
    name: str | None,
    endpoint: tuple[str, ...],
    timeout: float,
    **wanted: Any,
) -> None:
    """Cancel the messages of TOPIC that match."""
    chosen = Filter(**wanted)
    with connect(endpoint, timeout) as client:
        if _wanted(client, topic, chosen, "cancelled", yes, dry):
            report(topic, name, "cancelled", partial(client.cancel_where, topic, chosen))


@where.command()
@click.argument("topic")
@click.option(
    "--by", required=True, metavar="DURATION", callback=lambda _c, _p, text: _signed(text),
    help="How much later: 1h, 30m; sooner with a minus sign: --by=-1h.",
)  # fmt: skip
@_filter_options
@_work_options
@mesh_options
def shift(
    topic: str,
    by: timedelta,
    yes: bool,
    dry: bool,
    name: str | None,
    endpoint: tuple[str, ...],
    timeout: float,
    **wanted: Any,
) -> None:
    """Move the messages of TOPIC that match by a length of time."""
    chosen = Filter(**wanted)
    with connect(endpoint, timeout) as client:
        if _wanted(client, topic, chosen, "shifted", yes, dry):
            report(topic, name, "shifted", partial(client.shift_where, topic, chosen, by=by))


@where.command()
@click.argument("topic")
@due_options
@click.option(
    "--spread", default="0s", metavar="DURATION", callback=duration,
    help="Spread them evenly over this time from then on.",
)  # fmt: skip
@_filter_options
@_work_options
@mesh_options
def move(
    topic: str,
    at: Any,
    after: timedelta | None,
    spread: timedelta,
    yes: bool,
    dry: bool,
    name: str | None,
    endpoint: tuple[str, ...],
    timeout: float,
    **wanted: Any,
) -> None:
    """Move the messages of TOPIC that match to an instant."""
    due, chosen = chosen_due(at, after), Filter(**wanted)
    with connect(endpoint, timeout) as client:
        if _wanted(client, topic, chosen, "moved", yes, dry):
            report(topic, name, "moved", partial(client.move_where, topic, chosen, to=due, spread=spread))


@where.command()
@click.argument("topic")
@click.option("--rank", required=True, type=click.IntRange(0, 65_535), help="Their new rank.")
@_filter_options
@_work_options
@mesh_options
def change(
    topic: str,
    rank: int,
    yes: bool,
    dry: bool,
    name: str | None,
    endpoint: tuple[str, ...],
    timeout: float,
    **wanted: Any,
) -> None:
    """Give the messages of TOPIC that match another rank."""
    chosen = Filter(**wanted)
    with connect(endpoint, timeout) as client:
        if _wanted(client, topic, chosen, "changed", yes, dry):
            report(topic, name, "changed", partial(client.change_where, topic, chosen, rank=rank))


@where.command()
@click.argument("topic")
@click.option(
    "--spread", default="0s", metavar="DURATION", callback=duration,
    help="Spread them evenly over this time from now on.",
)  # fmt: skip
@_filter_options
@_work_options
@mesh_options
def redrive(
    topic: str,
    spread: timedelta,
    yes: bool,
    dry: bool,
    name: str | None,
    endpoint: tuple[str, ...],
    timeout: float,
    **wanted: Any,
) -> None:
    """Let the dead messages of TOPIC that match wait again, as if they had never been tried."""
    chosen = Filter(**wanted, state="dead")
    with connect(endpoint, timeout) as client:
        if _wanted(client, topic, chosen, "redriven", yes, dry):
            report(topic, name, "redriven", partial(client.redrive_where, topic, chosen, spread=spread))


@where.command()
@click.argument("topic")
@_filter_options
@_work_options
@mesh_options
def discard(
    topic: str,
    yes: bool,
    dry: bool,
    name: str | None,
    endpoint: tuple[str, ...],
    timeout: float,
    **wanted: Any,
) -> None:
    """Discard the dead messages of TOPIC that match."""
    chosen = Filter(**wanted, state="dead")
    with connect(endpoint, timeout) as client:
        if _wanted(client, topic, chosen, "discarded", yes, dry):
            report(topic, name, "discarded", partial(client.discard_where, topic, chosen))


@where.command()
@click.argument("topic")
@click.argument("name")
@json_option
@mesh_options
def show(topic: str, name: str, as_json: bool, endpoint: tuple[str, ...], timeout: float) -> int:
    """Show how far the pass NAME of TOPIC is. Exit code 1 if nothing is known of it, or not any more."""
    with connect(endpoint, timeout) as client:
        found = client.pass_named(topic, name).refresh()
    if as_json and found.known:
        click.echo(json.dumps(_document(name, found)))
        return 0
    return _progress(name, found)


@where.command()
@click.argument("topic")
@click.argument("name")
@mesh_options
def stop(topic: str, name: str, endpoint: tuple[str, ...], timeout: float) -> int:
    """Stop the pass NAME of TOPIC; what it has done stays done. Exit code 1 if nothing is known of it."""
    with connect(endpoint, timeout) as client:
        return _progress(name, client.pass_named(topic, name).stop())


def _progress(name: str, found: Progress) -> int:
    if not found.known:
        click.echo(f"dueq: nothing is known of pass {name}", err=True)
        return 1
    state = "ended" if found.ended else f"{found.left:,} at most to be looked at"
    click.echo(f"{name}: {found.done:,} done{_skipped(found.skipped)}; {state}")
    return 0


def _document(name: str, found: Progress) -> dict[str, Any]:
    skipped = dict(found.skipped)
    return {"name": name, "done": found.done, "skipped": skipped, "left": found.left, "ended": found.ended}


def _skipped(skipped: Mapping[str, int]) -> str:
    return "".join(f", {n:,} skipped: {why}" for why, n in skipped.items())


def _signed(text: str) -> timedelta:
    if text.startswith("-"):
        return -parse_duration(text[1:], "--by")
    return parse_duration(text.removeprefix("+"), "--by")


def _wanted(client: Client, topic: str, wanted: Filter, verb: str, yes: bool, dry: bool) -> bool:
    """Show how many it is about, and ask; whether to go on."""
    if yes and not dry:
        return True
    found = client.count_where(topic, wanted)
    if dry:
        click.echo(f"{counted(found)} of {topic} would be {verb}")
        return False
    if found:
        if not sys.stdin.isatty():
            raise click.UsageError(
                f"{counted(found)} of {topic} would be {verb}; nobody can be asked here: say --yes."
            )
        ask(f"{counted(found)} of {topic} will be {verb}. Go on?")
    return True


def report(topic: str, name: str | None, done: str, begin: Callable[..., Pass]) -> None:
    """Begin a pass, wait for it, and say what it has done and what it has left.

    Args:
        topic: whose messages.
        name: of the pass; None: a new one.
        done: the word for what it does to messages.
        begin: takes `name`.
    """
    work = _begun(topic, new_name() if name is None else name, begin)
    wait_for(work)
    click.echo(f"{work.done:,} {done}{_skipped(work.skipped)}")


def _begun(topic: str, name: str, begin: Callable[..., Pass]) -> Pass:
    """Begin a pass; if it is not seen whether it has begun, say how to look for it."""
    try:
        return begin(name=name)
    except (Busy, OutcomeUnknown, KeyboardInterrupt):
        click.echo(f"dueq: the pass may have begun: dueq where show {topic} {name}", err=True)
        raise


def wait_for(work: Pass) -> None:
    """Wait for a pass; if its end is not seen, say how to look for it."""
    try:
        work.wait()
    except (DueqError, KeyboardInterrupt):
        for name in work.names:
            click.echo(f"dueq: the pass goes on in the mesh: dueq where show {work.topic} {name}", err=True)
        raise

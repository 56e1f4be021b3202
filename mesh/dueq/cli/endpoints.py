"""`dueq endpoint`."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import IO

import click

from dueq import Client, EndpointInfo
from dueq.cli.group import SuggestingGroup
from dueq.cli.headers import header_option
from dueq.cli.instants import instant, parse_duration
from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.tables import new_table, print_table
from dueq.client import endpoints
from dueq.sealing import NO_KEY


@click.group(cls=SuggestingGroup)
def endpoint() -> None:
    """Have gateways send the messages of a topic to a URL."""


@endpoint.command("set")
@click.argument("name")
@click.option("--topic", required=True, help="An existing topic; it has one endpoint at most.")
@click.option("--url", required=True, help="The URL to send to, https:// or http://.")
@click.option(
    "--secrets", "secrets_file", type=click.File("r"), metavar="FILE",
    help="Secrets to sign with, one a line, the newest first; - is the standard input.  [default: as they are]",
)  # fmt: skip
@click.option(
    "--request-timeout", "wait", default="15s", show_default=True, metavar="DURATION",
    help="How long a receiver may take for its answer.",
)  # fmt: skip
@click.option(
    "--max-in-flight",
    type=int,
    default=64,
    show_default=True,
    help="How many requests one gateway sends at a time.",
)
@click.option(
    "--only", multiple=True, metavar="NAME=VALUE",
    help="Send only messages whose header has this value, and finish others unsent; may be given several times.",
)  # fmt: skip
@click.option("--targets", is_flag=True, help="Messages may name URLs of their own.")
@header_option("every request")
@mesh_options
def set_(
    name: str,
    topic: str,
    url: str,
    secrets_file: IO[str] | None,
    wait: str,
    max_in_flight: int,
    only: tuple[str, ...],
    targets: bool,
    headers: dict[str, str] | None,
    endpoint: tuple[str, ...],
    timeout: float,
) -> None:
    """Have gateways send the messages of a topic to a URL, as the endpoint NAME.

    Prints the secret that was made for it, which is never shown again.
    """
    secrets = None if secrets_file is None else _lines(secrets_file)
    matching: dict[str, list[str]] = {}
    for text in only:
        field, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"--only is NAME=VALUE, not {text!r:.80}")
        matching.setdefault(field, []).append(value)
    with connect(endpoint, timeout) as client:
        made = client.set_endpoint(
            name, topic, url, secrets=secrets, request_timeout=parse_duration(wait, "--request-timeout"),
            max_in_flight=max_in_flight, headers=headers, matching=matching, targets=targets,
        )  # fmt: skip
        if made:  # first: it is never shown again, and what follows may fail
            click.echo(made)
        _warn(client, name)


def _lines(file: IO[str]) -> list[str]:
    try:
        return [line.strip() for line in file if line.strip()]
    except UnicodeDecodeError as error:
        raise click.FileError(file.name, f"it is not UTF-8: {error}") from error


@endpoint.command("list")
@json_option
@mesh_options
def list_(as_json: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """List all endpoints by name."""
    with connect(endpoint, timeout) as client:
        found = client.endpoints()
    if as_json:
        for info in found:
            click.echo(_document(info))
        return
    shown = new_table("", "endpoint", "topic", "url", "state")
    for info in found:
        shown.add_row(info.name, info.topic, info.url, _state(info))
    if shown.row_count:
        print_table(shown)
    else:
        click.echo("no endpoints")


@endpoint.command("show")
@click.argument("name")
@json_option
@mesh_options
def show(name: str, as_json: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """Show the endpoint NAME, without its secrets."""
    with connect(endpoint, timeout) as client:
        info = client.endpoint(name)
    if as_json:
        click.echo(_document(info))
        return
    shown = new_table("", "", "", heads=False)
    for field, value in (
        ("topic", info.topic),
        ("url", info.url),
        ("state", _state(info)),
        ("version", str(info.version)),
        ("time-out", f"{info.timeout:g} s"),
        ("in flight", f"at most {info.max_in_flight:,} of each gateway"),
        ("headers", ", ".join(info.headers) or "-"),
        ("targets", "allowed" if info.targets else "refused"),
        ("only", ", ".join(f"{key}={'|'.join(words)}" for key, words in info.filter.items()) or "-"),
        ("secrets", ", ".join(f"{each} until {until:%F %T} UTC" if until else each for each, until in info.secrets)),
        ("stored", "sealed" if info.sealed else "in clear"),
    ):  # fmt: skip
        shown.add_row(field, value)
    print_table(shown)


@endpoint.command("pause")
@click.argument("name")
@click.option(
    "--until", metavar="INSTANT", callback=instant, help="When the pause ends by itself.  [default: never]"
)
@mesh_options
def pause(name: str, until: int | datetime | None, endpoint: tuple[str, ...], timeout: float) -> None:
    """Pause the topic of the endpoint NAME."""
    with connect(endpoint, timeout) as client:
        client.pause_endpoint(name, until)
    click.echo(f"paused {name}")


@endpoint.command("resume")
@click.argument("name")
@mesh_options
def resume(name: str, endpoint: tuple[str, ...], timeout: float) -> None:
    """Resume the topic of the endpoint NAME, and use the endpoint again if it was disabled."""
    with connect(endpoint, timeout) as client:
        client.resume_endpoint(name)
    click.echo(f"resumed {name}")


@endpoint.command("rotate")
@click.argument("name")
@click.option(
    "--grace", default="24h", show_default=True, metavar="DURATION",
    help="How long requests are signed with the present secrets, too.",
)  # fmt: skip
@mesh_options
def rotate(name: str, grace: str, endpoint: tuple[str, ...], timeout: float) -> None:
    """Make a new secret for the endpoint NAME, and print it: it is never shown again."""
    with connect(endpoint, timeout) as client:
        click.echo(client.rotate_endpoint(name, grace=parse_duration(grace, "--grace")))
        _warn(client, name)


@endpoint.command("seal")
@mesh_options
def seal(endpoint: tuple[str, ...], timeout: float) -> None:
    """Store all endpoints again, so that brokers with keys seal their secrets with the newest key."""
    with connect(endpoint, timeout) as client:
        names = list(client.connection.follow(endpoints.seal(), timeout))
        for name in names:
            click.echo(f"stored {name}")
        _warn(client, *names)


@endpoint.command("delete")
@click.argument("name")
@mesh_options
def delete(name: str, endpoint: tuple[str, ...], timeout: float) -> None:
    """Delete the endpoint NAME; its topic and messages stay."""
    with connect(endpoint, timeout) as client:
        client.delete_endpoint(name)
    click.echo(f"deleted {name}")


def _warn(client: Client, *names: str) -> None:
    if not all(client.endpoint(name).sealed for name in names):
        click.echo(f"Warning: {NO_KEY}", err=True)


def _state(info: EndpointInfo) -> str:
    if info.disabled:
        return f"disabled: {info.disabled}"
    if info.paused and (info.paused_until is None or info.paused_until > datetime.now(UTC)):
        return "paused" if info.paused_until is None else f"paused until {info.paused_until:%F %T} UTC"
    return "in use"


def _document(info: EndpointInfo) -> str:
    return json.dumps(dataclasses.asdict(info), default=datetime.isoformat)

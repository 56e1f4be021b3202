"""`dueq status`: the mesh on one page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dueq import Client
from dueq.cli.options import Seconds, connect, json_option, mesh_options
from dueq.cli.sparkline import sparkline
from dueq.cli.tables import new_table
from dueq.errors import DueqError
from dueq.limits import MAX_CLOCK_OFFSET_MS

Document = dict[str, Any]
"""The result of `Client.status`. Brokers of different builds answer: every key may be missing."""

_EVERYWHERE = ("0.0.0.0", "::", "*")
_COUNTS = ("scheduled", "ready", "leased", "dead")
_SPARK_WIDTH = 20
_WIDTH = 140


@click.command()
@click.option("--watch", "-w", is_flag=True, help="Keep showing it until interrupted.")
@click.option(
    "--every", type=Seconds(0.1, 86_400), default=1.0, show_default=True, metavar="SECONDS",
    help="With --watch: how often.",
)  # fmt: skip
@json_option
@mesh_options
def status(watch: bool, every: float, as_json: bool, endpoint: tuple[str, ...], timeout: float) -> None:
    """Show brokers, topics and consumers: who leads, who is in sync, what is due in the next minute."""
    with connect(endpoint, timeout) as client:
        if watch and not as_json:
            _watch(client, every)
        elif watch:
            for document in _documents(client, every):
                click.echo(json.dumps(document))
        elif as_json:
            click.echo(json.dumps(client.status(), indent=2))
        else:
            _console().print(render(client.status()), crop=False)


def _console() -> Console:
    """Into a file or a pipe tables are as wide as they need."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def _watch(client: Client, every: float) -> None:
    """Redraw a terminal's screen; into a file or a pipe write one page after the other."""
    console = _console()
    if not console.is_terminal:
        for document in _documents(client, every):
            console.print(render(document), crop=False)
        return
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for document in _documents(client, every):
            live.update(render(document), refresh=True)


def _documents(client: Client, every: float) -> Iterator[Document]:
    from threading import Event

    pause = Event()
    last: Document = {}
    while True:
        try:
            last = client.status()
        except DueqError as error:
            last = last | {"unreachable": str(error)}
        yield last
        pause.wait(every)


def render(document: Document) -> RenderableType:
    """Draw the page.

    Args:
        document: as `Client.status` returns.
    """
    parts: list[RenderableType] = []
    if reason := document.get("unreachable"):
        parts.append(Text(f"no answer just now: {reason}", style="bold red"))
    parts.append(_brokers(document.get("brokers", {})))
    topics = document.get("topics", {})
    parts += [_topics(topics), _partitions(topics)] if topics else [Text("no topics yet", style="dim")]
    if consumers := document.get("consumers", []):
        parts.append(_consumers(consumers))
    return Group(*parts)


def _brokers(brokers: dict[str, Document]) -> Table:
    alive = sum(1 for broker in brokers.values() if broker.get("alive", True))
    columns = ("broker", "state", "endpoint", ">leads", ">clock ms", "metrics")
    table = new_table(f"Brokers: {alive} of {len(brokers)} alive", *columns)
    for name in sorted(brokers):
        broker = brokers[name]
        table.add_row(
            name, _broker_state(broker), str(broker.get("endpoint", "")),
            _number(broker.get("leaderships")), _clock(broker.get("clock") or {}),
            _metrics(broker),
        )  # fmt: skip
    return table


def _metrics(broker: Document) -> str:
    """Where metrics are served; of an address that stands for all of its machine, the host that others use."""
    address, endpoint = str(broker.get("metrics") or ""), str(broker.get("endpoint") or "")
    host, _, port = address.rpartition(":")
    reached_at = endpoint.rpartition("/")[2].rpartition(":")[0]
    return f"{reached_at}:{port}" if host.strip("[]") in _EVERYWHERE and reached_at else address


def _broker_state(broker: Document) -> Text:
    if not broker.get("alive", True):
        return Text("● no answer", style="bold red")
    troubles = []
    if degraded := broker.get("degraded"):
        troubles.append(f"degraded: {degraded}")
    if refused := broker.get("inserts_refused"):
        troubles.append(f"inserts refused: {refused}")
    if (broker.get("clock") or {}).get("hold"):
        troubles.append("clock: pushes held")
    if orphans := broker.get("orphans"):
        troubles.append(f"{len(orphans)} replicas of no topic: {' '.join(orphans)}")
    if unopened := broker.get("unopened"):
        troubles.append(f"{len(unopened)} replicas not opened, its log says why: {' '.join(unopened)}")
    return Text("● " + "; ".join(troubles), style="yellow") if troubles else Text("● alive", style="green")


def _clock(clock: Document) -> Text:
    offset = clock.get("offset_ms")
    if offset is None:
        return Text("–", style="dim")
    far = abs(offset) > MAX_CLOCK_OFFSET_MS
    return Text(f"{offset:+.1f}", style="bold red" if far else "")


def _topics(topics: dict[str, Document]) -> Table:
    columns = (
        "topic",
        "kind",
        ">parts",
        ">scheduled",
        ">ready",
        ">leased",
        ">dead",
        ">in 1 min",
        "|now → 1 min",
    )
    table = new_table("Topics", *columns)
    for name in sorted(topics):
        topic = topics[name]
        parts: list[Document] = topic.get("partitions") or []
        due = _added(part.get("due_next_minute") or [] for part in parts)
        table.add_row(
            Text(name, style="bold"), str(topic.get("kind", "")), str(len(parts)),
            *(_number(sum(part.get(key) or 0 for part in parts)) for key in _COUNTS),
            _number(sum(due)), Text(sparkline(due, _SPARK_WIDTH), style="cyan"),
        )  # fmt: skip
    return table


def _partitions(topics: dict[str, Document]) -> Table:
    table = new_table(
        "Partitions", "partition", "leader", ">epoch", "in sync", ">lag", ">scheduled", ">ready", ">leased"
    )
    for name in sorted(topics):
        topic = topics[name]
        for part in topic.get("partitions") or []:
            table.add_row(
                f"{name}/{part.get('index', part.get('uid', '?'))}", _leader(part),
                _number(part.get("epoch")),
                _in_sync(part, topic), _number(max((part.get("lag") or {}).values(), default=None)),
                *(_number(part.get(key)) for key in ("scheduled", "ready", "leased")),
            )  # fmt: skip
    return table


def _leader(part: Document) -> Text:
    if not part.get("leader"):
        return Text("none", style="bold red")
    return Text(str(part["leader"]), style="" if part.get("serving", True) else "yellow")


def _in_sync(part: Document, topic: Document) -> Text:
    isr = part.get("isr") or []
    replicas = part.get("replicas") or isr
    style = "green" if len(isr) >= len(replicas) else "yellow"
    if len(isr) < (topic.get("min_isr") or 0):
        style = "bold red"
    away = [name for name in replicas if name not in isr]
    text = Text(f"{len(isr)}/{len(replicas)} {' '.join(isr)}", style=style)
    if away:
        text.append(f" ({' '.join(away)})", style="dim")
    held: dict[str, Document] = part.get("held") or {}
    stopped = [name for name, replica in held.items() if replica.get("role") == "stopped"]
    return text.append(f" stopped: {' '.join(stopped)}", style="bold red") if stopped else text


def _consumers(consumers: list[Document]) -> Table:
    """One line a consumer: its sessions with all leaders added up."""
    table = new_table("Consumers", "topic", "consumer", "at", ">credit", ">leased")
    sessions: dict[tuple[str, str], list[Document]] = {}
    for session in consumers:
        sessions.setdefault((str(session.get("topic", "")), str(session.get("consumer", ""))), []).append(
            session
        )
    for (topic, consumer), parts in sorted(sessions.items()):
        brokers = " ".join(sorted({str(part.get("broker", "")) for part in parts}))
        credit, leased = (sum(part.get(key) or 0 for part in parts) for key in ("credit", "leased"))
        table.add_row(topic, consumer[:12], brokers, _number(credit), _number(leased))
    return table


def _added(series: Iterator[list[int]] | Any) -> list[int]:
    total: list[int] = []
    for counts in series:
        total += [0] * (len(counts) - len(total))
        for i, count in enumerate(counts):
            total[i] += count
    return total


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"

"""`dueq partition`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from dueq import Client
from dueq.cli.group import SuggestingGroup
from dueq.cli.options import Seconds, json_option
from dueq.cli.tables import new_table, print_table
from dueq.cluster.recovering import (
    Fate,
    Holding,
    PartitionFacts,
    Recovering,
    RecoveryRefused,
    best_survivor,
    connect,
    reason_against,
)
from dueq.core.ports.membership import Registration
from dueq.errors import DueqError

_ASK_S: Final = 5.0
_ZOOKEEPER_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.2
_WIDTH: Final = 140

_FATES: Final = {
    Fate.PRESENT: Text("up with this disk", style="green"),
    Fate.AWAY: Text("not registered", style="red"),
    Fate.REPLACED: Text("up with another disk", style="red"),
    Fate.UNUSABLE: Text("up, but its data may be incomplete", style="red"),
}


@click.group(cls=SuggestingGroup)
def partition() -> None:
    """Recover a partition that has lost all in-sync replicas."""


@partition.command()
@click.argument("topic")
@click.argument("index", type=click.IntRange(min=0))
@click.option("--from", "survivor", metavar="BROKER", help="The replica that goes on with what it holds.")
@click.option("--accept-loss", is_flag=True, help="Do it. Without this, nothing is changed.")
@click.option(
    "--zookeeper", required=True, envvar="DUEQ_ZOOKEEPER", metavar="HOST:PORT,…",
    help="The mesh's ZooKeeper, with /ROOT at the end if it has one. Default: DUEQ_ZOOKEEPER.",
)  # fmt: skip
@click.option(
    "--timeout", type=Seconds(min=0, min_open=True), default=30.0, show_default=True,
    metavar="SECONDS", help="How long to wait until the partition is served.",
)  # fmt: skip
@json_option
def recover(
    topic: str,
    index: int,
    survivor: str | None,
    accept_loss: bool,
    zookeeper: str,
    timeout: float,
    as_json: bool,
) -> int:
    """Let partition INDEX of TOPIC go on from one replica when the disks of all its in-sync replicas are
    lost.

    Without --accept-loss it shows what is known and changes nothing (exit code 2). With it, what that replica
    does not hold is given up for good.
    """
    if accept_loss and survivor is None:
        raise click.UsageError("Say which replica goes on: --from BROKER.")
    if accept_loss and as_json:
        raise click.UsageError("--json is for looking; with --accept-loss there is nothing to read.")
    try:
        connection = connect(zookeeper, min(timeout, _ZOOKEEPER_S))
        with connection as recovering:
            facts = recovering.look(topic, index, lambda living, uid: _held(living, topic, uid))
            if accept_loss and survivor is not None:
                return _recover(recovering, facts, survivor, timeout)
    except ValueError as error:
        if isinstance(error, DueqError):
            raise
        raise click.UsageError(str(error)) from error
    return show(facts, survivor, as_json)


# ---------------------------------------------------------------- what the replicas hold


def _held(living: Mapping[str, Registration], topic: str, uid: int) -> dict[str, Holding]:
    """Ask the brokers what they hold; those that do not answer are left out."""
    if not living:
        return {}
    try:
        with _client(living) as client:
            view = _view(client.status(), topic, uid)
    except DueqError:
        return {}
    return {
        broker_id: Holding(
            str(held["role"]), int(held.get("last_epoch", held["epoch"])), int(held["end"]), int(held["commit"])
        )
        for broker_id, held in view.get("held", {}).items()
        if held.keys() >= {"role", "epoch", "end", "commit"}
    }  # fmt: skip


def _client(living: Mapping[str, Registration]) -> Client:
    return Client([seen.endpoint for seen in living.values()], timeout=_ASK_S)


def _view(status: dict[str, Any], topic: str, uid: int) -> dict[str, Any]:
    for view in status.get("topics", {}).get(topic, {}).get("partitions", []):
        if view.get("uid") == uid:
            return dict(view)
    return {}


# ---------------------------------------------------------------- looking


def show(facts: PartitionFacts, survivor: str | None, as_json: bool) -> int:
    """Show what is known and what recovering would mean.

    Args:
        facts: as read.
        survivor: who is to go on, if somebody was named.
        as_json: print a document for programs.

    Returns:
        The exit code: 2, as nothing was done (with `as_json` 1 when it would be refused).

    Raises:
        RecoveryRefused: it would be refused; after the tables.
    """
    refused = reason_against(facts, survivor)
    if as_json:
        click.echo(json.dumps(document(facts, refused), indent=2))
        return 1 if refused else 2
    _print_tables(facts)
    if refused:
        raise RecoveryRefused(refused)
    click.echo(_consequences(facts, survivor or best_survivor(facts)))
    return 2


def document(facts: PartitionFacts, refused: str) -> dict[str, Any]:
    """Return what is known as plain JSON values.

    Args:
        facts: as read.
        refused: why the partition cannot be recovered so; "" when it can.
    """
    node = facts.node
    return {
        "topic": facts.topic.name, "index": facts.index, "uid": facts.uid, "min_isr": facts.topic.min_isr,
        "leader": node.leader, "leader_lives": facts.leader_lives, "epoch": node.epoch, "version": facts.version,
        "isr": [
            {"broker": m.broker_id, "store_id": m.store_id, "fate": facts.fate(m).value} for m in node.isr
        ],
        "replicas": [_replica(facts, broker_id) for broker_id in facts.replicas],
        "best": best_survivor(facts), "refused": refused,
    }  # fmt: skip


def _replica(facts: PartitionFacts, broker_id: str) -> dict[str, Any]:
    seen, held = facts.registrations.get(broker_id), facts.held.get(broker_id)
    return {
        "broker": broker_id,
        "registered": seen is not None,
        "store_id": seen.store_id if seen else None,
        "endpoint": seen.endpoint if seen else None,
        "held": held._asdict() if held else None,
    }


def _print_tables(facts: PartitionFacts) -> None:
    node = facts.node
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    leader = f"led by {node.leader}" if facts.leader_lives else "no leader lives"
    console.print(
        f"{facts.name}: {leader}, epoch {node.epoch}, at least {facts.topic.min_isr} in sync", highlight=False
    )
    members = new_table("In sync, as ZooKeeper has it", "broker", "disk", "state", "disk now")
    for member in node.isr:
        seen = facts.registrations.get(member.broker_id)
        members.add_row(
            member.broker_id, member.store_id, _FATES[facts.fate(member)], seen.store_id if seen else "–"
        )
    print_table(members, console)
    replicas = new_table(
        "Replicas", "broker", "state", "disk", ">last record", ">of epoch", ">committed", "endpoint"
    )
    for broker_id in facts.replicas:
        seen, held = facts.registrations.get(broker_id), facts.held.get(broker_id)
        state = "no answer" if held is None else held.role
        replicas.add_row(
            broker_id, state if seen else Text("not registered", style="red"), seen.store_id if seen else "–",
            *(f"{n:,}" for n in (held.end, held.last_epoch, held.commit)) if held else ("–", "–", "–"),
            seen.endpoint if seen else "",
        )  # fmt: skip
    print_table(replicas, console)


def _consequences(facts: PartitionFacts, survivor: str) -> str:
    if not survivor:
        return "No replica that could go on is up and answers: start one first."
    held = facts.held[survivor]
    return (
        f"Nothing was changed. With --from {survivor} --accept-loss, {facts.name} goes on from {survivor}, "
        f"up to record {held.end:,} of epoch {held.last_epoch:,}.\n"
        "What came after that is given up for good: messages scheduled since are lost, and those moved, cancelled\n"
        "or delivered since are as they were, so that they can be delivered (again). Do it only when the disks of\n"
        f"all replicas in sync are lost. It is served once {facts.topic.min_isr} replicas hold the same log.\n"
        "Should a lost disk turn up later, do not start a broker on it: its log and this one are two histories."
    )


# ---------------------------------------------------------------- doing it


def _recover(recovering: Recovering, facts: PartitionFacts, survivor: str, timeout: float) -> int:
    deadline = time.monotonic() + timeout
    recovering.accept_loss(facts, survivor)
    click.echo(f"{facts.name} goes on from {survivor}; waiting until it is served")
    pause = threading.Event()
    with _client(facts.registrations) as client:
        while True:
            view = _served_by(client, facts)
            if view.get("serving") and view["epoch"] > facts.node.epoch:
                click.echo(
                    f"{facts.name} is served by {view['leader']} in epoch {view['epoch']}, in sync: "
                    f"{' '.join(view['isr'])}"
                )
                return 0
            if time.monotonic() > deadline:
                break
            pause.wait(_LOOK_AGAIN_S)
    node = recovering.node(facts)
    click.echo(
        f"dueq: {facts.name} was not seen served within {timeout:g} s; the change is made and needs no repeating. "
        f"ZooKeeper says: leader {node.leader or 'none'}, epoch {node.epoch}, in sync "
        f"{' '.join(member.broker_id for member in node.isr)}. It needs {facts.topic.min_isr} of its replicas "
        f"({', '.join(facts.replicas)}) up and level",
        err=True,
    )
    return 1


def _served_by(client: Client, facts: PartitionFacts) -> dict[str, Any]:
    try:
        return _view(client.status(), facts.topic.name, facts.uid)
    except DueqError:
        return {}

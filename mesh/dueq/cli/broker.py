"""`dueq broker`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dueq.config import BrokerConfig
from dueq.errors import InvalidRequest


@click.command()
@click.option("--id", metavar="NAME", help="The broker's name in the mesh; its data folder belongs to it.")
@click.option(
    "--zookeeper", metavar="HOST:PORT,…", help="The mesh's ZooKeeper, with /ROOT at the end if it has one."
)
@click.option("--no-zookeeper", is_flag=True, help="A mesh of this one broker, without ZooKeeper.")
@click.option(
    "--listen",
    metavar="tcp://ADDRESS:PORT",
    help="Where to listen for clients and peers.  [default: tcp://127.0.0.1:7400]",
)
@click.option(
    "--advertise",
    metavar="tcp://HOST:PORT",
    help="The address that others connect to. [default: as --listen]",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False),  # not a Path: an empty text would be the working directory
    help="The data folder; not for --store memory.",
)
@click.option(
    "--store",
    metavar="KIND",
    help="The kind of store: leveldb, or memory (nothing survives). [default: leveldb]",
)
@click.option("--store-memory-bytes", type=int, help="How much a store in memory holds.  [default: 1 GiB]")
@click.option("--metrics", metavar="ADDRESS:PORT", help="Where to serve Prometheus.  [default: nowhere]")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="The least severe lines to log.  [default: info]",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "console", "json"]),
    help="How lines are written; auto: console on a terminal, else json.  [default: auto]",
)
@click.option(
    "--max-clock-offset-ms",
    type=int,
    help="With a larger clock offset, leaderships are handed over. [default: 250]",
)
@click.option(
    "--disk-timeout-ms",
    type=int,
    help="With a disk that does not answer for this long, the broker ends, and others take over. [default: 30000]",
)
@click.option("--hot-rows-total", type=int, help="Waiting messages kept in memory.  [default: 131072]")
@click.option(
    "--secrets-key-file",
    type=click.Path(dir_okay=False),
    help="Keys that seal the secrets of endpoints, the newest first.  [default: they are not sealed]",
)
@click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A TOML file with these settings.",
)
def broker(file: Path | None, no_zookeeper: bool, **flags: Any) -> int:
    """Run one broker until SIGINT or SIGTERM.

    Each setting comes from its flag, else from the environment (DUEQ_ID, DUEQ_DATA, …), else from --config.

    With --store memory nothing survives the process: the broker starts again empty, and catches up from the
    others. If all brokers end, everything is lost.
    """
    if no_zookeeper:
        if flags["zookeeper"]:
            raise click.UsageError("Give --zookeeper or --no-zookeeper, not both.")
        flags["zookeeper"] = ""
    try:
        config = BrokerConfig.load(flags, file)
    except InvalidRequest as error:
        raise click.UsageError(str(error)) from error
    if not config.zookeeper and not no_zookeeper:
        raise click.UsageError(
            "Say where the mesh's ZooKeeper is (--zookeeper), or --no-zookeeper for one broker."
        )
    # Imported here, so that wrong usage is reported without loading the databases.
    from dueq.broker.process import run

    return run(config)

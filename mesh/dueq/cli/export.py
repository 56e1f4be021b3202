"""`dueq export`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import click

from dueq.cli.options import connect, json_option, mesh_options
from dueq.cli.tables import new_table, print_table

FORMAT: Final = 1


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME", help="Only this topic; may be given several times."
)
@click.option("--payloads", is_flag=True, help="Write the payloads too.")
@json_option
@mesh_options
def export(
    folder: Path,
    topics: tuple[str, ...],
    payloads: bool,
    as_json: bool,
    endpoint: tuple[str, ...],
    timeout: float,
) -> None:
    """Write waiting messages and delivery statistics into FOLDER as Parquet.

    FOLDER/timelines has a file for each partition: the messages that wait, as they were at one instant of that
    partition; messages that a consumer holds are left out. FOLDER/statistics has the deliveries and senders of the last
    week by hour. FOLDER/manifest.json is written last, and names for each partition the last record that
    its file contains.
    """
    try:
        from dueq.cli.parquet import write_partition, write_statistics
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"dueq export needs the package {error.name}: pip install 'dueq[spark]'"
        ) from error
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{folder} is not empty: name a new folder")
    with connect(endpoint, timeout) as client:
        known = {info.name: info.partitions for info in client.topics()}
        unknown = sorted(set(topics) - known.keys())
        if unknown:
            raise click.UsageError(f"there is no topic {unknown[0]!r}; there are: {', '.join(sorted(known))}")
        (folder / "timelines").mkdir(parents=True)
        (folder / "statistics").mkdir()
        manifest: dict[str, Any] = {
            "format": FORMAT, "exported_at_ms": time.time_ns() // 1_000_000, "payloads": payloads, "topics": {},
        }  # fmt: skip
        for topic in topics or sorted(known):
            manifest["topics"][topic] = [
                write_partition(client, topic, partition, folder / "timelines", payloads)
                for partition in range(known[topic])
            ]
        manifest["statistics_rows"] = write_statistics(client, topics, folder / "statistics")
    _write_manifest(folder / "manifest.json", manifest)
    if as_json:
        click.echo(json.dumps(manifest))
    else:
        _print(folder, manifest)


def _write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    unfinished.rename(path)


def _print(folder: Path, manifest: dict[str, Any]) -> None:
    shown = new_table(str(folder), "topic", ">partitions", ">messages")
    for topic, partitions in manifest["topics"].items():
        shown.add_row(topic, str(len(partitions)), f"{sum(part['messages'] for part in partitions):,}")
    print_table(shown)

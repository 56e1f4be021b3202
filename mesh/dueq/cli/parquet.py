"""What `dueq export` writes: waiting messages and statistics as Parquet; needs PyArrow."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from dueq import Client, StatisticsRow
from dueq.client.arrow_pages import TIMELINE_SCHEMA, batch_of, instants
from dueq.errors import SnapshotLost

_ATTEMPTS: Final = 5
_GROUP_ROWS: Final = 65_536
_GROUP_BYTES: Final = 32 << 20
"""The least size of the files' row groups: readers find few large ones, and memory holds one."""

_NAME_MAX: Final = 200
"""Longer names of topics are cut in names of files. No topic's name has a `~`."""

_DELIVERIES: Final = pa.schema([
    ("broker", pa.string()), ("topic", pa.string()), ("hour", pa.timestamp("us", "UTC")), ("delivered", pa.int64()),
    ("redelivered", pa.int64()), ("lateness_bounds_ms", pa.list_(pa.float64())),
    ("lateness_counts", pa.list_(pa.int64())),
])  # fmt: skip
_SENDERS: Final = pa.schema([
    ("broker", pa.string()), ("topic", pa.string()), ("hour", pa.timestamp("us", "UTC")), ("sender", pa.string()),
    ("scheduled", pa.int64()),
])  # fmt: skip


def write_partition(
    client: Client, topic: str, partition: int, folder: Path, payloads: bool
) -> dict[str, Any]:
    """Write one partition from one snapshot; begin again when the snapshot is lost."""
    path = folder / f"{_stem(topic)}-{partition:04}.parquet"
    for attempt in range(_ATTEMPTS):
        try:
            return _write_snapshot(client, topic, partition, path, payloads)
        except SnapshotLost:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _stem(topic: str) -> str:
    """Return what a topic's files are called: a file's name has 255 bytes at most, as that of a topic has.

    A file whose name began with _ or . would be skipped by Spark.
    """
    if len(topic) > _NAME_MAX:
        topic = f"{topic[:_NAME_MAX]}~{blake2b(topic.encode(), digest_size=8).hexdigest()}"
    return f"topic-{topic}"


def _write_snapshot(client: Client, topic: str, partition: int, path: Path, payloads: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "partition": partition,
        "file": path.name,
        "epoch": 0,
        "applied": 0,
        "stamp_ms": 0,
        "messages": 0,
    }
    unfinished = path.with_suffix(".unfinished")
    with pq.ParquetWriter(unfinished, TIMELINE_SCHEMA, compression="zstd") as writer:
        group: list[pa.RecordBatch] = []
        for page in client.browse_pages(topic, partition, payloads=payloads):
            found.update(epoch=page.epoch, applied=page.applied, stamp_ms=page.stamp_ms)
            found["messages"] += len(page)
            group.append(batch_of(page))
            if sum(map(len, group)) >= _GROUP_ROWS or sum(batch.nbytes for batch in group) >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(group))
                group = []
        writer.write_table(pa.Table.from_batches(group, TIMELINE_SCHEMA))
    unfinished.rename(path)
    return found


def write_statistics(client: Client, topics: Sequence[str], folder: Path) -> int:
    rows = [row for row in client.statistics() if not topics or row.topic in topics]
    pq.write_table(_deliveries(rows), folder / "deliveries.parquet", compression="zstd")
    pq.write_table(_senders(rows), folder / "senders.parquet", compression="zstd")
    return len(rows)


def _deliveries(rows: Sequence[StatisticsRow]) -> pa.Table:
    columns = [
        [row.broker for row in rows], [row.topic for row in rows], instants([row.hour for row in rows]),
        [row.delivered for row in rows], [row.redelivered for row in rows],
        [list(row.lateness_bounds_ms) for row in rows], [list(row.lateness_counts) for row in rows],
    ]  # fmt: skip
    return pa.Table.from_arrays(_arrays(columns, _DELIVERIES), schema=_DELIVERIES)


def _senders(rows: Sequence[StatisticsRow]) -> pa.Table:
    flat = [(row, sender, count) for row in rows for sender, count in row.scheduled.items()]
    columns = [
        [row.broker for row, _, _ in flat], [row.topic for row, _, _ in flat],
        instants([row.hour for row, _, _ in flat]), [sender for _, sender, _ in flat], [count for _, _, count in flat],
    ]  # fmt: skip
    return pa.Table.from_arrays(_arrays(columns, _SENDERS), schema=_SENDERS)


def _arrays(columns: Sequence[Any], schema: pa.Schema) -> list[pa.Array]:
    return [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]

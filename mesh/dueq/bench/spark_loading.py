"""A table loaded by Spark: rows per second from Parquet until committed, against the SDK alone in one process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from dueq.bench import bare
from dueq.bench.figures import Figure
from dueq.bench.growth import Cost, Sheet
from dueq.bench.processes import peak_mb
from dueq.bench.stage import Stage
from dueq.bench.tasks import PAYLOAD_BYTES, Produce, Produced, now_ms
from dueq.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SIZES = (300_000, 1_000_000)
_HUGE_SIZES = (5_000_000,)
_PARTITIONS = 6
_BATCH = 1_000
_THREADS = 8
_ALONE_MAX = 1_000_000
_HOUR_MS = 3_600_000
_LOAD_S = 900.0
_LOOK_S = 0.25
_WORKER: Final = "pyspark.daemon"
_COSTS = (
    Cost("spark/rate", "Parquet → committed, 2 tasks", "rows/s", bare.BULK.name, better_high=True),
    Cost("spark/alone", "the SDK alone, in one process", "msg/s", bare.BULK.name, better_high=True),
    Cost("spark/memory", "peak memory of a Python worker of Spark", "MB"),
)


def measure(stage: Stage) -> list[Figure]:
    """300,000 and 1,000,000 rows (--huge: 5,000,000) from Parquet through Spark, and through the SDK alone."""
    sheet = stage.sheet(_COSTS)
    with _session() as spark, TemporaryDirectory(prefix="dueq-bench-") as folder:
        for size in (*_SIZES, *(_HUGE_SIZES if stage.huge else ())):
            stage.say(f"spark, writing {size:,} rows as Parquet")
            table = str(Path(folder) / str(size))
            _write(spark, table, size)
            for run in range(1 if size > _ALONE_MAX else stage.runs):
                stage.say(f"spark, loading {size:,} rows, run {run + 1}")
                _once(stage, spark, table, size, sheet)
    return sheet.figures()


@contextmanager
def _session() -> Iterator[SparkSession]:
    try:
        from dueq.spark import spark_session
    except ImportError as error:
        raise InvalidRequest(f"this needs PySpark: pip install 'dueq[spark]' ({error})") from error
    spark = spark_session("dueq bench", spark_log_level="ERROR", spark_master="local[2]")
    try:
        yield spark
    finally:
        spark.stop()


def _write(spark: SparkSession, table: str, size: int) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    number = F.col("id")
    due = F.lit(now_ms() + 2 * _HOUR_MS) + number % _HOUR_MS
    payload = F.lpad(number.cast("string"), PAYLOAD_BYTES, "x").cast("binary")
    spark.range(size).select(due.alias("due"), payload.alias("payload")).write.parquet(table)


def _once(stage: Stage, spark: SparkSession, table: str, size: int, sheet: Sheet) -> None:
    import dueq.spark

    with stage.mesh() as (mesh, client, crew):
        topic = stage.topic(client, _PARTITIONS, replicas=3)
        with _watched() as peak:
            report = dueq.spark.schedule(
                spark.read.parquet(table), topic=topic, due="due", payload="payload", endpoints=mesh.endpoints
            )
        assert report.messages == size == client.describe(topic).scheduled
        sheet.add("rate", size, size / report.seconds)
        sheet.add("memory", size, max(peak))
        alone = stage.topic(client, _PARTITIONS, replicas=3)
        at_ms, rows = now_ms() + 2 * _HOUR_MS, min(size, _ALONE_MAX)
        (producer,) = crew.start(
            Produce(mesh.endpoints, alone, _BATCH, _THREADS, rows, at_ms=at_ms, span_ms=_HOUR_MS)
        )
        producer.go()
        produced: Produced = producer.result(_LOAD_S)
        sheet.add("alone", size, produced.rate)


@contextmanager
def _watched() -> Iterator[list[float]]:
    """Watch Spark's Python workers below this process; yields what will be the peaks of their memory, in MB."""
    peaks, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_S):
            peaks.append(peak_mb(_WORKER, below=os.getpid()))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield peaks
    finally:
        over.set()
        watcher.join()

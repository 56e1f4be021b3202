"""`format("dueq")` in batches, and what `dueq export` writes, with a real Spark and a real mesh."""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import dueq.spark
from dueq import Client
from dueq.cli.main import run
from dueq.local import LocalMesh
from dueq.spark.analytics import analyse, lateness

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),
]

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def mesh() -> Iterator[LocalMesh]:
    with LocalMesh(brokers=1, zookeeper=False) as mesh:
        yield mesh


@pytest.fixture
def topic(mesh: LocalMesh, spark: SparkSession, request: pytest.FixtureRequest) -> str:
    dueq.spark.register(spark)
    name = re.sub(r"[^\w-]", "-", request.node.name)[:80]
    with Client(mesh.endpoints) as client:
        client.create_topic(name, partitions=3, replicas=1)
    return name


def options(mesh: LocalMesh, topic: str, **more: str) -> dict[str, str]:
    return {"topic": topic, "endpoints": ",".join(mesh.endpoints), **more}


def read(spark: SparkSession, mesh: LocalMesh, topic: str, **more: str) -> DataFrame:
    return spark.read.format("dueq").options(**options(mesh, topic, **more)).load()


def test_what_is_scheduled_is_read_without_being_consumed(
    mesh: LocalMesh, spark: SparkSession, topic: str
) -> None:
    first_ms = (int(time.time()) // 3600 + 2) * HOUR_MS
    dues = [first_ms + 1000 * i for i in range(2000)]
    with Client(mesh.endpoints) as client, client.producer(topic) as producer:
        keys = [f"k{i}" if i % 2 else None for i in range(2000)]
        ids = producer.schedule_many([b"%d" % i for i in range(2000)], dues, keys=keys)
    rows = read(spark, mesh, topic, payloads="true").orderBy("due").collect()
    assert [row.id for row in rows] == ids
    assert [bytes(row.payload) for row in rows] == [b"%d" % i for i in range(2000)]
    assert [row.key for row in rows] == keys
    assert rows[5].due.replace(tzinfo=UTC) == datetime.fromtimestamp(dues[5] / 1000, UTC)
    assert {row.topic for row in rows} == {topic}
    assert {row.partition for row in rows} <= {0, 1, 2}

    part = read(spark, mesh, topic, start=str(dues[500]), end=str(dues[1500]))
    assert part.count() == 1000
    assert part.select("payload").distinct().collect() == [(None,)]
    assert sum(1 for _ in Client(mesh.endpoints).browse(topic)) == 2000


def test_conditions_narrow_what_is_read(mesh: LocalMesh, spark: SparkSession, topic: str) -> None:
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    with Client(mesh.endpoints) as client, client.producer(topic) as producer:
        for second in range(10):
            producer.schedule_many([b"x"] * 3, first + timedelta(seconds=second))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, mesh, topic, pushdown="true")
        edge = F.lit(first + timedelta(seconds=4))
        assert frame.where(F.col("due") >= edge).count() == 18
        assert frame.where(F.col("waits_until") < edge).count() == 12
        assert frame.where((F.col("waits_until") == edge) & F.col("partition").isin(0, 1, 2)).count() == 3
        assert frame.where(F.col("partition") == 7).count() == 0
        tasks = frame.where(F.col("partition") == 1).rdd.getNumPartitions()
        assert tasks == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_schema_of_one_s_own_is_refused_before_a_task_runs(
    mesh: LocalMesh, spark: SparkSession, topic: str
) -> None:
    reader = spark.read.format("dueq").options(topic=topic, endpoints=mesh.endpoints[0])
    with pytest.raises(Exception, match=r"dueq's columns are topic, .*leave out .schema"):
        reader.schema("id string, due timestamp").load().collect()


def test_an_export_of_an_empty_mesh_is_evaluated_to_nothing_yet(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    with LocalMesh(brokers=1, zookeeper=False) as empty:
        assert run(["export", str(tmp_path / "export"), "-e", empty.endpoints[0]]) == 0
    files = analyse(spark, tmp_path / "export", tmp_path / "out")
    assert [table(path) for path in files if path.suffix == ".csv"] == [[], [], []]


def test_an_export_is_evaluated(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    with Client(mesh.endpoints) as client, client.producer(topic) as producer:
        base_ms = (int(time.time()) // 3600 + 5) * HOUR_MS
        producer.schedule_many([b"x"] * 30, [base_ms + (i % 2) * HOUR_MS for i in range(30)])
        producer.schedule_many([b"now"] * 20, 0)
        with client.consumer(topic) as consumer:
            got = 0
            while got < 20:
                batch = consumer.receive(timeout=300)
                got += len(batch)
                consumer.ack(batch)
    folder = tmp_path / "export"
    arguments = ["export", str(folder), "--topic", topic, "--json", "-e", mesh.endpoints[0]]
    assert run(arguments) == 0
    manifest = json.loads(capsys.readouterr().out)
    assert sum(part["messages"] for part in manifest["topics"][topic]) == 30
    assert json.loads((folder / "manifest.json").read_text()) == manifest
    assert spark.read.parquet(str(folder / "timelines")).count() == 30
    assert run(arguments) == 2

    out = tmp_path / "out"
    files = analyse(spark, folder, out)
    assert [path.name for path in files] == [
        "lateness.csv", "lateness.png", "load.csv", "load.png", "senders.csv", "senders.png",
    ]  # fmt: skip
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in files if path.suffix == ".png")
    assert [int(row["messages"]) for row in table(out / "load.csv")] == [15, 15]
    assert sum(int(row["delivered"]) for row in table(out / "lateness.csv")) == 20
    senders = table(out / "senders.csv")
    assert sum(int(row["scheduled"]) for row in senders if row["topic"] == topic) == 50


def test_a_percentile_that_falls_on_the_end_of_a_bucket_is_its_bound(spark: SparkSession) -> None:
    """999 of 1,000 are 99.9 per cent, though 1,000 times 0.999 is a little more in floating point."""
    columns = (
        "topic string, hour timestamp, delivered bigint, redelivered bigint, lateness_bounds_ms array<double>,"
        " lateness_counts array<bigint>"
    )
    hour = datetime(2026, 1, 1)
    frame = spark.createDataFrame([("t", hour, 1_000, 0, [1.0, 8.0], [500, 499, 1])], columns)
    [row] = lateness(frame).collect()
    assert (row["p50_ms"], row["p99_ms"], row["p99_9_ms"]) == (1.0, 8.0, 8.0)


def test_topics_of_the_longest_names_are_exported_each_into_its_own_files(
    mesh: LocalMesh, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    names = [f"{'t' * 254}{last}" for last in "ab"]
    with Client(mesh.endpoints) as client:
        for name in names:
            client.create_topic(name, partitions=1, replicas=1)
            with client.producer(name) as producer:
                producer.schedule_many([name.encode()], [2_000_000_000_000])
    arguments = [word for name in names for word in ("--topic", name)]
    folder = tmp_path / "export"
    assert run(["export", str(folder), *arguments, "--json", "-e", mesh.endpoints[0]]) == 0
    manifest = json.loads(capsys.readouterr().out)
    for name in names:
        [part] = manifest["topics"][name]
        [row] = pq.read_table(folder / "timelines" / part["file"]).to_pylist()
        assert row["topic"] == name

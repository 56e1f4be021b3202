"""Streams in and out of a real mesh: once in, at least once out, and in order through the reorder buffer."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import dueq.spark
from dueq import Client
from dueq.local import LocalMesh
from dueq.spark.reorder import reorder

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(scope="module")
def mesh() -> Iterator[LocalMesh]:
    with LocalMesh(brokers=1, zookeeper=False) as mesh:
        yield mesh


@pytest.fixture
def topic(mesh: LocalMesh, spark: SparkSession, request: pytest.FixtureRequest) -> str:
    dueq.spark.register(spark)
    name = re.sub(r"[^\w-]", "-", request.node.name)[:80]
    with Client(mesh.endpoints) as client:
        client.create_topic(name, partitions=2, replicas=1)
    return str(name)


def options(mesh: LocalMesh, name: str, **more: str) -> dict[str, str]:
    return {"topic": name, "endpoints": ",".join(mesh.endpoints)} | more


def consumed(spark: SparkSession, mesh: LocalMesh, topic: str) -> DataFrame:
    return spark.readStream.format("dueq").options(**options(mesh, topic, max_messages="40")).load()


def waiting(mesh: LocalMesh, topic: str) -> int:
    """Messages that are neither acknowledged nor cancelled."""
    with Client(mesh.endpoints) as client:
        info = client.describe(topic)
    return (info.scheduled or 0) + (info.ready or 0) + (info.leased or 0)


def eventually(what: Callable[[], bool], query: Any = None, seconds: float = 200.0) -> None:
    """Wait until `what` holds; a query that fails meanwhile fails the test."""
    until = time.monotonic() + seconds
    while not what():
        if query is not None and query.exception() is not None:
            raise query.exception()
        assert time.monotonic() < until, "in vain"
        if query is not None:
            query.awaitTermination(0.1)


def test_due_messages_become_rows_and_are_acknowledged_with_their_micro_batch(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    with Client(mesh.endpoints) as client, client.producer(topic) as producer:
        ids = producer.schedule_many([b"%d" % i for i in range(100)], 0, keys=[f"k{i}" for i in range(100)])
    seen: list[Any] = []
    query = (
        consumed(spark, mesh, topic).writeStream.option("checkpointLocation", str(tmp_path / "c"))
        .foreachBatch(lambda frame, batch: seen.extend(frame.collect())).start()
    )  # fmt: skip
    try:
        eventually(lambda: waiting(mesh, topic) == 0, query)
    finally:
        query.stop()
    assert sorted(row.id for row in seen) == sorted(ids)
    assert {(row.key, bytes(row.payload)) for row in seen} == {(f"k{i}", b"%d" % i) for i in range(100)}
    assert {(row.topic, row.attempt, row.size == len(row.payload)) for row in seen} == {(topic, 1, True)}
    assert {row.partition for row in seen} <= {0, 1}


def test_a_query_that_fails_and_is_started_again_loses_nothing(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    with Client(mesh.endpoints) as client, client.producer(topic) as producer:
        ids = producer.schedule_many([b"x"] * 50, 0)
    seen: list[Any] = []
    failures: list[int] = []

    def work(frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        if rows and not failures:
            failures.append(batch)
            raise RuntimeError("this micro-batch fails")
        seen.extend(rows)

    def start() -> Any:
        stream = consumed(spark, mesh, topic).writeStream.option("checkpointLocation", str(tmp_path / "c"))
        return stream.foreachBatch(work).start()

    query = start()
    eventually(lambda: not query.isActive)
    assert failures
    assert not seen
    query = start()
    try:
        eventually(lambda: waiting(mesh, topic) == 0, query)
    finally:
        query.stop()
    assert Counter(row.id for row in seen) == Counter(ids)
    assert max(row.attempt for row in seen) == 2


def test_a_micro_batch_that_spark_repeats_schedules_nothing_twice(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    """The commit of the last micro-batch is taken out of the checkpoint: as if the driver had died before it."""
    source, checkpoint = tmp_path / "in", tmp_path / "c"
    source.mkdir()
    for file in range(3):
        lines = [json.dumps({"due": 0, "payload": f"{file}/{i}"}) for i in range(20)]
        (source / f"{file}.json").write_text("\n".join(lines))

    def run() -> None:
        frame = (
            spark.readStream.schema("due bigint, payload string")
            .option("maxFilesPerTrigger", 1)
            .json(str(source))
        )
        query = (
            frame.writeStream.format("dueq").options(**options(mesh, topic))
            .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()

    run()
    assert waiting(mesh, topic) == 60
    last = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()),
        key=lambda p: int(p.name),
    )
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    run()
    assert waiting(mesh, topic) == 60
    with Client(mesh.endpoints) as client:
        payloads = Counter(message.payload for message in client.browse(topic, payloads=True))
    assert payloads == Counter(f"{file}/{i}".encode() for file in range(3) for i in range(20))


def test_what_there_is_can_be_taken_at_once(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    with Client(mesh.endpoints) as client, client.producer(topic) as producer:
        producer.schedule_many([b"now"] * 100, 0)
        producer.schedule(b"later", int(time.time() * 1000) + 3_600_000)
    query = (
        consumed(spark, mesh, topic).writeStream.format("memory").queryName("taken").outputMode("append")
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert spark.sql("select * from taken").count() == 100
    eventually(lambda: waiting(mesh, topic) == 1)


def test_events_out_of_order_come_out_in_order(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    """All that came within the bound, that is: how soon Spark has read the files, nobody can promise."""
    source, made = tmp_path / "in", tmp_path / "made"
    source.mkdir()
    made.mkdir()
    events = spark.readStream.schema("at bigint, n int").option("maxFilesPerTrigger", 2).json(str(source))
    buffer = reorder(
        events, topic=topic, event_time="at", bound=2.0, payload=None, key=F.col("n").cast("string"),
        checkpoint=str(tmp_path / "c"), endpoints=mesh.endpoints,
    )  # fmt: skip
    buffer.query.processAllAvailable()
    began_ms = int(time.time() * 1000) + 15_000
    order = [*range(0, 40, 2), *range(39, 0, -2)]
    for file in range(4):
        written = made / f"{file}.json"
        written.write_text("\n".join(json.dumps({"at": began_ms + 20 * i, "n": i}) for i in order[file::4]))
        written.rename(source / written.name)
    seen: list[Any] = []
    reading = buffer.ordered.writeStream.foreachBatch(
        lambda frame, batch: seen.extend(frame.collect())
    ).start()
    try:
        eventually(lambda: len(seen) == 40, reading)
    finally:
        reading.stop()
        buffer.query.stop()
    assert sorted(int(row.key) for row in seen) == list(range(40))
    in_time = [int(row.key) for row in seen if not row.late]
    assert in_time == sorted(in_time)
    assert in_time
    for row in seen:
        assert int(row.event_time.timestamp() * 1000) == began_ms + 20 * int(row.key)
        assert json.loads(row.payload) == {"n": int(row.key)}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"topic": "nowhere"}, "there is no topic 'nowhere'"),
        ({"max_mesages": "3"}, "did you mean 'max_messages'"),
        ({"lease": "soon"}, "'lease' is"),
    ],
)
def test_a_stream_with_a_wrong_option_says_so(
    mesh: LocalMesh, spark: SparkSession, topic: str, given: dict[str, str], why: str
) -> None:
    frame = spark.readStream.format("dueq").options(**options(mesh, topic, **given))
    with pytest.raises(Exception, match=why):
        frame.load().writeStream.format("memory").queryName("wrong").trigger(
            availableNow=True
        ).start().awaitTermination()

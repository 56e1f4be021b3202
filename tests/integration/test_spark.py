"""The Spark producer with a real Spark and a real mesh: rows become messages, once each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import dueq.spark
from dueq import Client
from dueq.errors import InvalidRequest, OutcomeUnknown, TopicNotFound
from dueq.local import LocalMesh
from dueq.spark.task import Load

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.filterwarnings("default")]

FAR_MS = 3_600_000


@pytest.fixture(scope="module")
def mesh() -> Iterator[LocalMesh]:
    with LocalMesh(brokers=1, zookeeper=False) as mesh:
        yield mesh


@pytest.fixture
def topic(mesh: LocalMesh, request: pytest.FixtureRequest) -> str:
    name = request.node.name
    with Client(mesh.endpoints) as client:
        client.create_topic(name, partitions=3, replicas=1)
    return str(name)


def numbers(spark: SparkSession, count: int, due_ms: int, slices: int = 2) -> DataFrame:
    frame = spark.range(0, count, numPartitions=slices)
    return frame.select(
        F.lit(due_ms).cast("bigint").alias("due"), F.col("id").cast("string").alias("payload")
    )


def received(mesh: LocalMesh, topic: str, count: int) -> Counter[bytes]:
    """Everything that comes, until `count` messages came and then none for a moment."""
    got: Counter[bytes] = Counter()
    with Client(mesh.endpoints) as client, client.consumer(topic) as consumer:
        while batch := consumer.receive(
            max_messages=1000, timeout=30.0 if sum(got.values()) < count else 1.0
        ):
            got.update(bytes(message.payload) for message in batch)
            consumer.ack(batch)
    return got


def test_rows_become_messages_over_all_partitions(mesh: LocalMesh, spark: SparkSession, topic: str) -> None:
    report = dueq.spark.schedule(
        numbers(spark, 5000, 0),
        topic=topic,
        due="due",
        payload="payload",
        endpoints=mesh.endpoints,
        batch_rows=100,
    )
    assert (report.rows, report.messages) == (5000, 5000)
    assert set(report.per_partition) == {0, 1, 2}
    assert sum(report.per_partition.values()) == 5000
    assert received(mesh, topic, 5000) == Counter(b"%d" % i for i in range(5000))


@dataclass
class Failing:
    """Does all of `inner`, and then fails, in the first attempts of each task."""

    inner: Any
    attempts: int

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "inner"), name)

    def __call__(self, batches: Any) -> Any:
        from pyspark import TaskContext

        done = list(self.inner(batches))
        if TaskContext.get().attemptNumber() < self.attempts:
            raise RuntimeError("this task fails after having done all")
        yield from done


def test_a_task_that_fails_after_scheduling_is_repeated_without_duplicates(
    mesh: LocalMesh, spark: SparkSession, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dueq.spark.producer.Load", lambda *some, **others: Failing(Load(*some, **others), 2))
    report = dueq.spark.schedule(
        numbers(spark, 3000, 0),
        topic=topic,
        due="due",
        payload="payload",
        endpoints=mesh.endpoints,
        batch_rows=100,
    )
    assert report.messages == 3000
    assert received(mesh, topic, 3000) == Counter(b"%d" % i for i in range(3000))


def test_a_job_that_fails_for_good_says_that_rows_may_have_been_scheduled(
    mesh: LocalMesh, spark: SparkSession, topic: str
) -> None:
    frame = numbers(spark, 10, 0)
    with pytest.raises(OutcomeUnknown, match="may have been scheduled"):
        dueq.spark.schedule(
            frame.mapInArrow(Failing(iter, 9), frame.schema),
            topic=topic, due="due", payload="payload", endpoints=mesh.endpoints,
        )  # fmt: skip


def test_timestamps_and_keys(mesh: LocalMesh, spark: SparkSession, topic: str) -> None:
    due = datetime.fromtimestamp(int(time.time()) + FAR_MS, UTC)
    frame = spark.createDataFrame(
        [(due, "a", b"x"), (due, "b", b"y")], "at timestamp, name string, body binary"
    )
    report = dueq.spark.schedule(
        frame, topic=topic, due=frame.at, payload="body", key="name", ids=True, endpoints=mesh.endpoints
    )
    assert set(report.ids) == {"a", "b"}
    with Client(mesh.endpoints) as client, client.producer(topic) as producer:
        producer.cancel(report.ids["a"])
        producer.move(report.ids["b"], 0)
    assert received(mesh, topic, 1) == Counter([b"y"])


def test_a_frame_without_rows_schedules_nothing(mesh: LocalMesh, spark: SparkSession, topic: str) -> None:
    report = dueq.spark.schedule(
        numbers(spark, 0, 0), topic=topic, due="due", payload="payload", endpoints=mesh.endpoints
    )
    assert (report.rows, report.messages, report.per_partition) == (0, 0, {})


@pytest.mark.parametrize(
    ("schema", "column"), [("due double, payload string", "due"), ("due bigint, payload int", "payload")]
)
def test_a_column_of_another_type_is_named_before_anything_runs(
    mesh: LocalMesh, spark: SparkSession, schema: str, column: str
) -> None:
    frame = spark.createDataFrame([], schema)
    with pytest.raises(InvalidRequest, match=f"the {column} column '{column}' is"):
        dueq.spark.schedule(frame, topic="t", due="due", payload="payload", endpoints=mesh.endpoints)


def test_a_row_without_due_is_named_and_the_task_not_repeated(
    mesh: LocalMesh, spark: SparkSession, topic: str
) -> None:
    frame = spark.createDataFrame([(None, "x")], "due bigint, payload string").coalesce(1)
    with pytest.raises(InvalidRequest, match="row 0 of Spark partition 0: due is null"):
        dueq.spark.schedule(frame, topic=topic, due="due", payload="payload", endpoints=mesh.endpoints)


def test_an_unknown_topic_is_refused_before_anything_runs(mesh: LocalMesh, spark: SparkSession) -> None:
    with pytest.raises(TopicNotFound):
        dueq.spark.schedule(
            numbers(spark, 1, 0), topic="nowhere", due="due", payload="payload", endpoints=mesh.endpoints
        )


def test_wrong_batch_rows_are_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidRequest, match="batch_rows"):
        dueq.spark.schedule(numbers(spark, 1, 0), topic="t", due="due", payload="payload", batch_rows=0)

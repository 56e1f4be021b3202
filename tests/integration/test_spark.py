"""The Spark producer with a real Spark and a real mesh: rows become messages, once each."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType

import dueq.spark
from dueq import Client
from dueq.errors import InvalidRequest, JobEnded, OutcomeUnknown, SequenceReused, TopicNotFound
from dueq.local import LocalMesh
from dueq.spark.columns import message_columns
from dueq.spark.task import Load
from dueq_codecs.groups import home_of_group

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),
]

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
            max_messages=1000, timeout=300.0 if sum(got.values()) < count else 1.0
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


def test_all_rows_have_one_body(mesh: LocalMesh, spark: SparkSession, topic: str) -> None:
    text = b"<p>everything must go</p>" * 900
    frame = numbers(spark, 3000, 0)
    report = dueq.spark.schedule(
        frame, topic=topic, due="due", key="payload", body=text, endpoints=mesh.endpoints, batch_rows=200
    )
    assert report.messages == 3000
    keys: set[str] = set()
    with Client(mesh.endpoints) as client, client.consumer(topic) as consumer:
        while len(keys) < 3000:
            batch = consumer.receive(max_messages=500, timeout=300.0)
            assert {message.payload for message in batch} == {text}
            keys |= {message.key for message in batch}
            consumer.ack(batch)
        assert client.producer(topic).close_body(client.producer(topic).body(text)) == 3
    with pytest.raises(InvalidRequest, match="not both"):
        dueq.spark.schedule(
            frame, topic=topic, due="due", payload="payload", body=text, endpoints=mesh.endpoints
        )


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
        frame,
        topic=topic,
        due=frame.at,
        payload=frame.body,
        key=F.upper("name"),
        ids=True,
        endpoints=mesh.endpoints,
    )
    assert set(report.ids) == {"A", "B"}
    with Client(mesh.endpoints) as client, client.producer(topic) as producer:
        producer.cancel(report.ids["A"])
        producer.move(report.ids["B"], 0)
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
    with pytest.raises(InvalidRequest, match=r"row 0 of Spark partition 0 \(payload 'x'\): due is null"):
        dueq.spark.schedule(frame, topic=topic, due="due", payload="payload", endpoints=mesh.endpoints)


def test_wrong_batch_rows_are_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidRequest, match="batch_rows"):
        dueq.spark.schedule(numbers(spark, 1, 0), topic="t", due="due", payload="payload", batch_rows=0)


def waiting(mesh: LocalMesh, topic: str) -> Counter[bytes]:
    with Client(mesh.endpoints) as client:
        return Counter(message.payload or b"" for message in client.browse(topic, payloads=True))


def far() -> int:
    return int(time.time() * 1000) + FAR_MS


def test_the_same_job_again_schedules_nothing_twice_however_spark_cuts_the_rows(
    mesh: LocalMesh, spark: SparkSession, topic: str
) -> None:
    due_ms = far()
    first = dueq.spark.schedule(
        numbers(spark, 500, due_ms), topic=topic, due="due", payload="payload", job_id="j", batch_rows=50,
        endpoints=mesh.endpoints,
    )  # fmt: skip
    again = dueq.spark.schedule(
        numbers(spark, 500, due_ms, slices=5).orderBy(F.desc("payload")), topic=topic, due="due",
        payload="payload", job_id="j", batch_rows=50, endpoints=mesh.endpoints,
    )  # fmt: skip
    assert (first.messages, first.deduplicated, first.job_id) == (500, 0, "j")
    assert (again.messages, again.deduplicated) == (500, 500)
    assert waiting(mesh, topic) == Counter(b"%d" % i for i in range(500))
    with Client(mesh.endpoints) as client:
        client.cancel_job(topic, "j")
    with pytest.raises(JobEnded, match="was cancelled; to load it again"):
        dueq.spark.schedule(
            numbers(spark, 1, due_ms), topic=topic, due="due", payload="payload", job_id="j",
            endpoints=mesh.endpoints,
        )  # fmt: skip


def test_a_job_that_differs_is_refused_and_no_row_is_there_twice(
    mesh: LocalMesh, spark: SparkSession, topic: str
) -> None:
    """Rows that were loaded in one request must not come again in another one, which the mesh would take for new."""
    due_ms = far()

    def load(count: int, batch_rows: int, first: int = 0) -> None:
        frame = numbers(spark, count, due_ms).where(F.col("payload").cast("int") >= first)
        dueq.spark.schedule(
            frame, topic=topic, due="due", payload="payload", job_id="j", batch_rows=batch_rows,
            endpoints=mesh.endpoints,
        )  # fmt: skip

    load(600, 20)
    for count, batch_rows, first in ((600, 5, 0), (600, 200, 0), (900, 20, 0), (600, 20, 7)):
        with pytest.raises(
            SequenceReused, match=r"job 'j' was loaded before, at least in part, with other rows"
        ):
            load(count, batch_rows, first)
        assert max(waiting(mesh, topic).values()) == 1
    load(600, 20)
    assert max(waiting(mesh, topic).values()) == 1


def test_a_frame_is_written_as_a_whole(mesh: LocalMesh, spark: SparkSession, topic: str) -> None:
    dueq.spark.register(spark)

    def write(frame: DataFrame, mode: str = "append", **options: str) -> None:
        writer = frame.write.format("dueq").options(
            topic=topic, endpoints=",".join(mesh.endpoints), **options
        )
        writer.mode(mode).save()

    write(numbers(spark, 100, far(), slices=3), job_id="w", batch_rows="20")
    assert waiting(mesh, topic) == Counter(b"%d" % i for i in range(100))
    write(numbers(spark, 100, far(), slices=5), job_id="w")
    assert sum(waiting(mesh, topic).values()) == 100
    bad = numbers(spark, 50, far()).withColumn("due", F.when(F.col("payload") != "49", F.col("due")))
    with pytest.raises(Exception, match=r"row \d+ of Spark partition \d+.*due is null"):
        write(bad, job_id="bad")
    assert sum(waiting(mesh, topic).values()) == 100
    with Client(mesh.endpoints) as client:
        job = client.job(topic, "bad")
        assert job is None or job.state == "aborted"
    with pytest.raises(Exception, match=r"dueq only adds messages"):
        write(numbers(spark, 1, far()), mode="overwrite")


def test_rows_as_json_lose_nothing_and_do_not_depend_on_the_session(
    mesh: LocalMesh, spark: SparkSession, topic: str
) -> None:
    frame = spark.sql(
        f"select {far()}L as due, timestamp'2030-01-31 09:00:00.123456Z' as at, "
        "timestamp_ntz'2030-01-31 09:00:00.123456' as wall, null as nothing"
    )
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for each in ("Asia/Tokyo", "America/New_York"):
            spark.conf.set("spark.sql.session.timeZone", each)
            dueq.spark.schedule(
                frame, topic=topic, due="due", payload=None, job_id="j", endpoints=mesh.endpoints
            )
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    row = b'{"at":"2030-01-31T09:00:00.123456Z","wall":"2030-01-31T09:00:00.123456","nothing":null}'
    assert waiting(mesh, topic) == {row: 1}


def test_rows_as_json_have_no_column_that_is_named_however_it_is_written(spark: SparkSession) -> None:
    frame = spark.sql("select 5L as due, 'k' as `a.b`, 'x' as rest")
    for due, key in (("due", "`a.b`"), ("DUE", "`A.B`")):
        rows = message_columns(frame, due, None, key).checked(100, None, False).collect()
        assert [(row.due, bytes(row.key), bytes(row.payload)) for row in rows] == [(5, b"k", b'{"rest":"x"}')]


def test_groups_of_a_collation_are_told_apart_byte_by_byte(spark: SparkSession) -> None:
    frame = spark.sql(
        "select 5L as due, 'x' as payload, collate(g, 'UNICODE_CI') as g from values 'a', 'A', '.a' as t(g)"
    )
    rows = message_columns(frame, "due", "payload", None, group="g").checked(100, None, False)
    assert [(row.group, row.reason) for row in rows.collect()] == [
        ("a", None), ("A", None), (".a", "a level of the group has no name"),
    ]  # fmt: skip
    assert rows.schema["group"].dataType == StringType()


@pytest.mark.parametrize(
    ("due", "payload", "said"),
    [
        (5, "payload", "due is a column or the name of one, not 5"),
        (None, "payload", "due is a column or the name of one, not None"),
        ("due + 1", "payload", r"no column 'due \+ 1' \(an expression: F.expr\)"),
        ("due", "pay.load", "the column 'pay.load' must be quoted, as `pay.load`"),
    ],
)
def test_what_is_no_column_is_said_to_be_none(spark: SparkSession, due: Any, payload: str, said: str) -> None:
    frame = numbers(spark, 1, 0).withColumn("pay.load", F.lit("x"))
    with pytest.raises(InvalidRequest, match=said):
        dueq.spark.schedule(frame, topic="t", due=due, payload=payload, endpoints="tcp://127.0.0.1:1")


def test_a_key_or_a_group_that_is_no_utf_8_is_a_bad_row(spark: SparkSession) -> None:
    frame = spark.sql(
        "select 5L as due, 'x' as payload, cast(b as string) as s, b from values (X'C3A9'), (X'FF'), (null) as t(b)"
    )
    for what in ({"key": "s"}, {"key": "b"}, {"key": None, "group": "s"}):
        rows = message_columns(frame, "due", "payload", **what).checked(100, None, True).collect()
        assert [row.reason for row in rows] == [None, f"the {list(what)[-1]} is no UTF-8", None]


def test_two_columns_of_one_name_are_said_to_be_two(spark: SparkSession) -> None:
    frame = spark.sql("select 1L as due, 2L as due, 'x' as payload")
    with pytest.raises(InvalidRequest, match=r"the due column 'due' does not fit: .*AMBIGUOUS"):
        message_columns(frame, "due", "payload", None)


def test_an_atomic_job_is_there_as_a_whole_or_not_at_all(
    mesh: LocalMesh, spark: SparkSession, topic: str
) -> None:
    def load(frame: DataFrame) -> dueq.spark.ScheduleReport:
        return dueq.spark.schedule(
            frame, topic=topic, due="due", payload="payload", job_id="all", atomic=True, hidden_for=600,
            batch_rows=20, endpoints=mesh.endpoints,
        )  # fmt: skip

    bad = numbers(spark, 100, far()).withColumn("due", F.when(F.col("payload") != "99", F.col("due")))
    with pytest.raises(InvalidRequest, match="due is null"):
        load(bad)
    assert not waiting(mesh, topic)
    with Client(mesh.endpoints) as client:
        # What a driver that died has left: some rows, hidden, never to be committed.
        left = client.begin_job(topic, "all", hidden_for=600)
        with client.producer(topic) as producer:
            producer.schedule_many([b"left"] * 5, far(), job=left)
    good = numbers(spark, 100, far(), slices=3)
    assert load(good).messages == 100
    assert waiting(mesh, topic) == Counter(b"%d" % i for i in range(100))
    again = load(good)
    assert (again.messages, again.deduplicated) == (100, 100)
    assert sum(waiting(mesh, topic).values()) == 100


def test_an_atomic_job_without_rows_and_one_whose_rows_are_due_at_once(
    mesh: LocalMesh, spark: SparkSession, topic: str
) -> None:
    def load(count: int) -> int:
        return dueq.spark.schedule(
            numbers(spark, count, 0), topic=topic, due="due", payload="payload", atomic=True, hidden_for=600,
            endpoints=mesh.endpoints,
        ).messages  # fmt: skip

    assert load(0) == 0
    assert load(30) == 30
    assert received(mesh, topic, 30) == Counter(b"%d" % i for i in range(30))


def test_rows_that_cannot_be_messages_are_collected(mesh: LocalMesh, spark: SparkSession, topic: str) -> None:
    due = far()
    frame = spark.createDataFrame(
        [(due, "a", "good"), (None, "b", "no due"), (due, None, "no payload"), (due, "d", "k" * 256)],
        "due bigint, payload string, name string",
    ).coalesce(1)
    report = dueq.spark.schedule(
        frame, topic=topic, due="due", payload="payload", key="name", on_error="collect",
        endpoints=mesh.endpoints,
    )  # fmt: skip
    assert (report.rows, report.messages, report.rejected_rows) == (4, 1, 3)
    assert report.rejected is not None
    rejected = {row.reason: row for row in report.rejected.collect()}
    assert set(rejected) == {"due is null", "payload is null", "the key has 256 bytes; it may have 255"}
    assert {row.spark_partition for row in rejected.values()} == {0}
    assert {row.place for row in rejected.values()} < {0, 1, 2, 3}
    content = json.loads(rejected["payload is null"].row)
    assert content == {"due": due, "payload": None, "name": "no payload"}
    with Client(mesh.endpoints) as client:
        assert [(message.key, message.payload) for message in client.browse(topic, payloads=True)] == [
            ("good", b"a")
        ]


def test_timestamps_are_rounded_up_and_rows_can_be_sent_as_json(
    mesh: LocalMesh, spark: SparkSession, topic: str
) -> None:
    frame = spark.createDataFrame([(1, "x", None)], "n int, name string, nothing string").select(
        "*", F.expr("timestamp_micros(4102444800000001)").alias("at")
    )
    dueq.spark.schedule(frame, topic=topic, due="at", payload=None, key="name", endpoints=mesh.endpoints)
    with Client(mesh.endpoints) as client:
        (message,) = client.browse(topic, payloads=True)
    assert message.due == 4102444800001
    assert json.loads(message.payload or b"") == {"n": 1, "nothing": None}


def test_two_attempts_of_a_task_at_the_same_time_schedule_each_row_once(
    mesh: LocalMesh, spark: SparkSession, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a task twice, as speculation does, with rows that come through a shuffle."""
    monkeypatch.setattr("dueq.spark.producer.Load", lambda *some, **others: Twice(Load(*some, **others)))
    frame = numbers(spark, 2000, far()).repartition(3)
    dueq.spark.schedule(
        frame, topic=topic, due="due", payload="payload", batch_rows=100, endpoints=mesh.endpoints
    )
    assert waiting(mesh, topic) == Counter(b"%d" % i for i in range(2000))


@dataclass
class Twice:
    """Does all of `inner` in two threads at once."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "inner"), name)

    def __call__(self, batches: Any) -> Any:
        rows = list(batches)
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(lambda: list(self.inner(iter(rows))))
            done = list(self.inner(iter(rows)))
            other.result()
        yield from done


def test_a_missing_column_and_a_mesh_out_of_reach_are_named(mesh: LocalMesh, spark: SparkSession) -> None:
    frame = numbers(spark, 1, 0)
    with pytest.raises(InvalidRequest, match=r"no column 'deu' to take due from; did you mean 'due'"):
        dueq.spark.schedule(frame, topic="t", due="deu", payload="payload", endpoints=mesh.endpoints)
    with pytest.raises(TopicNotFound, match="there is no topic 'nowhere'"):
        dueq.spark.schedule(frame, topic="nowhere", due="due", payload="payload", endpoints=mesh.endpoints)


def ranked(mesh: LocalMesh, count: int) -> dict[str, tuple[int, str | None]]:
    """Rank and group by payload of so many messages, acknowledged."""
    found = {}
    with Client(mesh.endpoints) as client, client.consumer("shared") as consumer:
        while len(found) < count:
            for message in consumer.receive(max_messages=100, timeout=300.0):
                found[message.payload.decode()] = message.rank, message.group
                message.ack()
    return found


def test_rows_have_ranks_and_groups_and_these_say_where_they_go(mesh: LocalMesh, spark: SparkSession) -> None:
    groups = [None, "", "acme.eu", "acme.us", "zoo", "b"]
    rows = [(0, f"{i}", i % 3, groups[i % 6]) for i in range(600)]
    frame = spark.createDataFrame(rows, "due bigint, payload string, urgency int, tenant string")
    with Client(mesh.endpoints) as client:
        client.create_topic("shared", kind="fair", partitions=3)
    report = dueq.spark.schedule(
        frame, topic="shared", due="due", payload="payload", rank="urgency", group="tenant",
        endpoints=mesh.endpoints, batch_rows=50,
    )  # fmt: skip
    assert report.messages == sum(report.per_partition.values()) == 600
    wanted = {payload: (rank, group or "") for _, payload, rank, group in rows}
    homes = Counter(home_of_group(group, 3) for *_, group in rows if group)
    assert all(report.per_partition[home] >= count for home, count in homes.items())
    waiting = spark.read.format("dueq").options(
        topic="shared", endpoints=",".join(mesh.endpoints), payloads="true"
    )
    shown = waiting.load().select("payload", "rank", "group").collect()
    assert {bytes(row.payload).decode(): (row.rank, row.group or "") for row in shown} == wanted
    assert ranked(mesh, 600) == wanted
    (frame.withColumnRenamed("urgency", "rank").withColumnRenamed("tenant", "group").write.format("dueq")
     .options(topic="shared", endpoints=",".join(mesh.endpoints)).mode("append").save())  # fmt: skip
    assert ranked(mesh, 600) == wanted
    with (
        Client(mesh.endpoints) as client,
        pytest.raises(InvalidRequest, match="the rank 70000 is not within"),
    ):
        dueq.spark.schedule(
            frame,
            topic="shared",
            due="due",
            payload="payload",
            rank=F.lit(70_000),
            endpoints=mesh.endpoints,
        )

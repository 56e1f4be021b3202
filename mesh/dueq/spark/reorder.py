"""A reorder buffer: events that come out of order go on in order, however many there are and whatever dies.

Each event is scheduled at its own time plus a bound; what falls due is read back in the order of those instants. The
mesh holds what waits, on disks, so the buffer may be days deep; Spark keeps no state for it. An event that comes later
than the bound allows is due at once, and so comes out of order: `late` says which.

From Kafka, for instance (the package `org.apache.spark:spark-sql-kafka-0-10_2.13` of one's Spark on the command line):

    events = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", "kafka1:9092,kafka2:9092")
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "200000")
        .option("failOnDataLoss", "true")
        .load()
    )
    buffer = reorder(
        events, topic="clicks-in-order", event_time="timestamp", bound=30.0,
        payload="value", key=F.col("key").cast("string"), checkpoint="s3a://…/reorder",
    )
    buffer.ordered.writeStream.…
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from dueq import Client, ids, limits
from dueq.client.arguments import count, endpoint_list
from dueq.client.times import Seconds, duration_ms
from dueq.errors import InvalidRequest
from dueq.limits import DUE_MS_MAX
from dueq.spark.columns import DUE, KEY, PAYLOAD, message_columns
from dueq.spark.loading import reach, topic_of
from dueq.spark.source import register

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming import StreamingQuery

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUV"
_SLACK_MS_MAX: Final = 60_000
SLACK_S: Final = 0.25
"""Time for which a due message is held back for earlier ones that come from other brokers."""


@dataclass(frozen=True)
class Reordered:
    """A reorder buffer at work.

    Attributes:
        query: schedules the events; ends when it is stopped, or fails.
        ordered: a stream of the events in order: `event_time`, `key`, `payload`, `late` (it came after its time plus
            the bound, and so out of order), `id`, `attempt`.
    """

    query: StreamingQuery
    ordered: DataFrame


def reorder(
    events: DataFrame,
    *,
    topic: str,
    event_time: str | Column,
    bound: Seconds,
    payload: str | Column | None,
    checkpoint: str,
    key: str | Column | None = None,
    endpoints: str | Sequence[str] | None = None,
    slack: Seconds = SLACK_S,
    max_messages: int = 4096,
) -> Reordered:
    """Put a stream of events in the order of their times.

    Each event comes out once, `bound` seconds after its own time; twice only after a failure, with the same `id` and
    a higher `attempt`. Order holds among events that came within the bound, as long as no broker is later than
    `slack`. Only one query may read `ordered`, since consumers share a topic.

    Args:
        events: a streaming DataFrame.
        topic: an existing topic of its own.
        event_time: a timestamp (or Unix ms as bigint): a column or its name.
        bound: seconds (or a timedelta) by which an event may be late.
        payload: as of `dueq.spark.schedule`; None: the row as JSON.
        checkpoint: folder where Spark keeps how far it has read the events.
        key: the message's key.
        endpoints: brokers; None for DUEQ_ENDPOINTS.
        slack: seconds, see SLACK_S.
        max_messages: of one micro-batch of `ordered`.

    Raises:
        InvalidRequest: a column is missing or of a wrong type, `events` is no stream, or a number is out of range.
        TopicNotFound: there is no such topic.
        Disconnected: no broker was reached in time; nothing was done.
    """
    bound_ms = duration_ms(bound, "bound", 0, DUE_MS_MAX)
    slack_ms = duration_ms(slack, "slack", 0, _SLACK_MS_MAX)
    count(max_messages, "max_messages", 1, limits.MICRO_BATCH_MESSAGES_MAX)
    if not events.isStreaming:
        raise InvalidRequest(
            "reorder takes a streaming DataFrame (spark.readStream); sort a batch with orderBy"
        )
    spark = events.sparkSession
    register(spark)
    known = endpoint_list(endpoints)
    with Client(known) as client:
        reach(client, known)
        topic_of(client, topic)
    where = {"topic": topic, "endpoints": ",".join(known)}
    chosen = message_columns(events, event_time, payload, key, "event_time")
    in_ms = chosen.frame.select(chosen.due.alias(DUE)).schema[DUE].dataType.simpleString() == "bigint"
    instant = F.timestamp_millis(chosen.due) if in_ms else chosen.due
    columns = [(instant + _interval(bound_ms)).alias(DUE), chosen.payload.alias(PAYLOAD)]
    if chosen.key is not None:
        columns.append(chosen.key.alias(KEY))
    query = (
        events.select(*columns).writeStream.format("dueq").options(**where)
        .option("checkpointLocation", checkpoint).outputMode("append").start()
    )  # fmt: skip
    read = spark.readStream.format("dueq").options(
        **where, order_slack=str(slack_ms / 1000), max_messages=str(max_messages)
    )
    ordered = read.load().select(
        (F.col("due") - _interval(bound_ms)).alias("event_time"), KEY, PAYLOAD,
        (_first_waited(F.col("id")) > F.col("due")).alias("late"), "id", "attempt",
    )  # fmt: skip
    return Reordered(query, ordered)


def _interval(amount_ms: int) -> Column:
    return F.expr(f"interval {amount_ms} milliseconds")


def _first_waited(message_id: Column) -> Column:
    """The instant from which a message first waited: 48 bits, with two zeros before them ten digits of its id."""
    digits = F.translate(F.substring(message_id, 1, 10), ids.ALPHABET, _DIGITS)
    return F.timestamp_millis(F.conv(digits, 32, 10).cast("bigint"))

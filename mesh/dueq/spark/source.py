"""`format("dueq")`: a data source of Spark 4, for batches and streams, to read and to write.

    frame.write.format("dueq").option("topic", "departures").mode("append").save()
    stream.writeStream.format("dueq").option("topic", "departures").option("checkpointLocation", …).start()
    spark.read.format("dueq").option("topic", "departures").load()          # what waits; nothing is consumed
    spark.readStream.format("dueq").option("topic", "departures").load()    # what falls due; consumed

Every option is text. Of all: `topic`; `endpoints` (with commas between; default: DUEQ_ENDPOINTS on the driver).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from dueq.errors import InvalidRequest
from dueq.spark import browsing, consuming, writing
from dueq.spark.options import Options
from dueq.spark.rows import ARROW_SCHEMA, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class DueqDataSource(DataSource):  # type: ignore[misc]
    """The source as Spark knows it: it makes readers and writers."""

    @classmethod
    def name(cls) -> str:
        """Return "dueq"."""
        return "dueq"

    def schema(self) -> str:
        """Return the columns of what is read (`dueq.spark.rows`)."""
        return SCHEMA

    def reader(self, schema: StructType) -> browsing.BrowsingReader:
        """Return a reader of what waits.

        Options: `payloads` (true: read them too), `start` and `end` (Unix ms or ISO 8601 with a time zone; messages
        that wait until start ≤ instant < end), `timeout` (seconds for a page), `pushdown` (true: conditions on
        partition, due and waits_until narrow what is read; needs spark.sql.python.filterPushdown.enabled).
        """
        _check_schema(schema)
        options = Options(self.options, browsing.OPTIONS, "to read what is scheduled")
        kind = browsing.FilteringReader if options.flag("pushdown", False) else browsing.BrowsingReader
        return kind(browsing.Range.of(options))

    def simpleStreamReader(self, schema: StructType) -> consuming.ConsumingReader:  # noqa: N802
        """Return a consumer of what falls due.

        Options: `max_messages` of a micro-batch (4,096), `lease` (60 s; extended while a micro-batch is under way),
        `wait` (0.2 s for a first message), `order_slack` (seconds to hold a message back for others that are due
        earlier, so that rows come in the order of their instants; without it, as they come).
        """
        _check_schema(schema)
        options = Options(self.options, consuming.OPTIONS, "to consume")
        return consuming.ConsumingReader(consuming.Consumption.of(options))

    def writer(self, schema: StructType, overwrite: bool) -> writing.BatchWriter:
        """Return a writer that loads all or nothing.

        Options: `due`, `payload`, `key`, `rank`, `group` (names of columns, by default these), `job_id` (the same again
        loads nothing twice), `batch_rows`, `timeout`, `hidden_for` (as `dueq.spark.schedule`), `sort` (false: tasks do
        not sort their rows; only for rows that did not come through a shuffle).
        """
        return writing.BatchWriter(Options(self.options, writing.OPTIONS, "to write"), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> writing.StreamWriter:  # noqa: N802
        """Return a writer of micro-batches.

        The options are those of `writer`, without `hidden_for`; `job_id` only names the job (another checkpoint is
        another query, whose rows are loaded whatever the job).
        """
        return writing.StreamWriter(
            Options(self.options, writing.STREAM_OPTIONS, "to write a stream"), schema, overwrite
        )


def _check_schema(schema: StructType) -> None:
    """Spark takes any schema from its user, and fails in the tasks if it is not the source's.

    Raises:
        InvalidRequest: it is not.
    """
    names = ARROW_SCHEMA.names
    if schema.names != names:
        raise InvalidRequest(
            f"dueq's columns are {', '.join(names)}: leave out .schema(…), and select those you want"
        )


def register(spark: SparkSession) -> None:
    """Let a Spark session know `format("dueq")`. Once more does nothing."""
    spark.dataSource.register(DueqDataSource)

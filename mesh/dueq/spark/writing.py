"""Writing with `format("dueq")`: batches all or nothing, streams once per micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from dueq import Client
from dueq.client.numbered import mesh_time_ms
from dueq.errors import InvalidRequest
from dueq.limits import REQUEST_ROWS_MAX
from dueq.spark.arrow_rows import Fields, in_settled_order
from dueq.spark.loading import (
    HIDDEN_FOR_MAX_S,
    HIDDEN_FOR_S,
    PATIENCE_S,
    abort,
    begin,
    commit,
    horizon_end_ms,
    reach,
    topic_of,
)
from dueq.spark.task import Load, Task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from dueq.spark.options import Options

OPTIONS: Final = (
    "topic", "endpoints", "due", "payload", "key", "rank", "group", "job_id", "batch_rows", "timeout", "hidden_for",
    "sort",
)  # fmt: skip
STREAM_OPTIONS: Final = tuple(name for name in OPTIONS if name != "hidden_for")


@dataclass
class Loaded(WriterCommitMessage):  # type: ignore[misc]
    """The results of one task.

    Attributes:
        rows: messages that are committed.
        deduplicated: those that an earlier attempt of the whole write had scheduled.
    """

    rows: int
    deduplicated: int


@dataclass(frozen=True)
class Sink:
    """Where and how rows are written. It is the same for both writers, and travels to the executors.

    Attributes:
        load: without its job for streams, whose tasks find it.
        fields: where due, payload and key are.
        payload_bytes_max, last_due_ms: what the topic allows.
        sort: whether tasks sort their rows.
    """

    load: Load
    fields: Fields
    payload_bytes_max: int
    last_due_ms: int | None
    sort: bool

    def send(self, load: Load, batches: Iterator[pa.RecordBatch]) -> Loaded:
        """Send all rows of one task.

        Raises:
            DueqError: a row cannot be a message, or the mesh does not take it.
        """
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        rows = self.fields.messages(batches, number, self.payload_bytes_max, self.last_due_ms)
        return Loaded(*Task(load, number).counts(in_settled_order(rows) if self.sort else rows))


def _sink(client: Client, options: Options, schema: StructType) -> Sink:
    fields = Fields.of(schema, options)
    endpoints = options.endpoints()
    info = topic_of(client, options.needed("topic"))
    load = Load(
        b"", info.name, info.home_partitions, endpoints,
        options.whole("batch_rows", REQUEST_ROWS_MAX, 1, REQUEST_ROWS_MAX),
        _patience(options), keyed=bool(fields.key), ranked=bool(fields.rank),
        grouped=bool(fields.group),
    )  # fmt: skip
    last_due_ms = horizon_end_ms(info, mesh_time_ms(client))
    return Sink(load, fields, info.payload_bytes_max, last_due_ms, options.flag("sort", True))


def _patience(options: Options) -> float:
    return options.seconds("timeout", PATIENCE_S, 0.1, 86_400)


def refuse_overwrite(overwrite: bool) -> None:
    """Messages are added, never replaced.

    Raises:
        InvalidRequest: they were to be.
    """
    if overwrite:
        raise InvalidRequest(
            'dueq only adds messages: .mode("append"), or .outputMode("append") of a stream '
            "(Client.cancel_job takes an earlier load back)"
        )


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Loads a DataFrame as one hidden job, which Spark commits or aborts.

    Made on the driver, where it begins the job; travels to the executors and to the process that commits.

    Raises:
        DueqError: as `dueq.spark.schedule` before any task starts.
    """

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        refuse_overwrite(overwrite)
        hidden_for = options.seconds("hidden_for", HIDDEN_FOR_S, 1, HIDDEN_FOR_MAX_S)
        endpoints = options.endpoints()
        with Client(endpoints, timeout=_patience(options)) as client:
            reach(client, endpoints)
            sink = _sink(client, options, schema)
            begun = begin(client, sink.load.topic, options.text("job_id") or None, hidden_for)
        load = replace(
            sink.load, name=begun.job.key, job=begun.job, began_ms=begun.began_ms, send=not begun.complete
        )
        self._sink, self._begun = replace(sink, load=load), begun

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task, hidden."""
        return self._sink.send(self._sink.load, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Show all of it."""
        load = self._sink.load
        with Client(load.endpoints, timeout=load.timeout) as client:
            commit(client, self._begun, sum(each.rows for each in messages if isinstance(each, Loaded)))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Withdraw all of it. If the mesh cannot be reached, it does so itself when `hidden_for` is over."""
        with Client(self._sink.load.endpoints) as client:
            abort(client, self._begun)


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Loads micro-batches: each row once, also when Spark repeats a micro-batch after a restart.

    Requests are named after query, micro-batch and Spark partition, and the mesh remembers them for 7 days. A
    micro-batch that Spark repeats after a restart must come in the same Spark partitions as before. A partition with
    other rows is refused, and the rows of partitions that did not exist before count as new.

    All micro-batches of a query are one job, by which they are found and taken back. It is not hidden. Its name is
    the option `job_id`, else "stream-" and the id of the query, which Spark keeps in the checkpoint.
    """

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        refuse_overwrite(overwrite)
        endpoints = options.endpoints()
        with Client(endpoints, timeout=_patience(options)) as client:
            reach(client, endpoints)
            self._sink = _sink(client, options, schema)
        self._job_id = options.text("job_id")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task of a micro-batch."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        if query is None or batch is None:
            raise InvalidRequest("Spark does not say which micro-batch of which query this is")
        load = self._sink.load
        with Client(load.endpoints, timeout=load.timeout) as client:
            begun = begin(client, load.topic, self._job_id or f"stream-{query}", None)
        name = b"%s/%s/%s" % (begun.job.key, query.encode(), batch.encode())
        return self._sink.send(replace(load, name=name, job=begun.job), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: what tasks have sent is committed."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: the repetition of the micro-batch sends what is missing."""

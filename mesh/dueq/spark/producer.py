"""`dueq.spark.schedule`: one call, one Spark job."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dueq.errors
from dueq import Client
from dueq.client.arguments import endpoint_list
from dueq.errors import InvalidRequest, OutcomeUnknown, Refused
from dueq.limits import DEFAULT_TIMEOUT_S, REQUEST_ROWS_MAX

try:
    from pyspark.errors import PySparkException

    from dueq.spark.columns import message_columns
    from dueq.spark.task import NEWS_SCHEMA, Task
except ImportError as error:
    raise ImportError("dueq.spark needs PySpark 4 and PyArrow: pip install 'dueq[spark]'") from error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row


@dataclass
class ScheduleReport:
    """What a call of `schedule` did.

    Attributes:
        rows: rows of the DataFrame.
        messages: messages that the mesh has acknowledged; equal to `rows`.
        per_partition: messages by number of the topic's partition, from 0.
        seconds: how long the Spark job took.
        ids: message ids by key, when a key column was given.
    """

    rows: int = 0
    messages: int = 0
    per_partition: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0
    ids: dict[str, str] = field(default_factory=dict)


def schedule(
    df: DataFrame,
    *,
    topic: str,
    due: str | Column,
    payload: str | Column,
    key: str | Column | None = None,
    endpoints: str | Sequence[str] | None = None,
    batch_rows: int = REQUEST_ROWS_MAX,
    timeout: float = DEFAULT_TIMEOUT_S,
) -> ScheduleReport:
    """Schedule every row of a DataFrame; returns when all of them are committed.

    A task that Spark runs again (a failure, speculation) takes effect once, if it computes the same rows in
    the same order, and for 15 minutes from the first attempt; other rows under the same request are refused
    (`SequenceReused`). A second call of this function is another job: it schedules everything again.

    Args:
        df: the rows; dueq must be installed where the executors run.
        topic: an existing topic.
        due: a column (or its name) of timestamps, or of Unix ms as bigint. Timestamps are rounded up to ms.
        payload: a column (or its name) of binary or string (sent as UTF-8).
        key: a column (or its name) whose text names a row in `ScheduleReport.ids`, to move and cancel later.
            All ids come to the driver: leave it out for millions.
        endpoints: brokers as the executors reach them; None for DUEQ_ENDPOINTS as it is on the driver.
        batch_rows: rows of one request, 1 to 1,024.
        timeout: seconds for each request; after that Spark repeats the task.

    Returns:
        The report.

    Raises:
        InvalidRequest: a column's type, or a row's due or payload, is not fit; the text names it. Other rows
            may have been scheduled.
        Refused: the mesh refused a request (TopicNotFound, PayloadTooLarge, …).
        OutcomeUnknown: the Spark job failed for another reason; some rows may have been scheduled.
        DueqError: the mesh could not be reached from the driver.
    """
    if (
        isinstance(batch_rows, bool)
        or not isinstance(batch_rows, int)
        or not 1 <= batch_rows <= REQUEST_ROWS_MAX
    ):
        raise InvalidRequest(f"batch_rows must be an int within 1 … {REQUEST_ROWS_MAX}, not {batch_rows!r}")
    frame, in_microseconds = message_columns(df, due, payload, key)
    known = tuple(endpoint_list(endpoints))
    with Client(known, timeout=timeout) as client:
        partitions = client.describe(topic).partitions
    task = Task(
        secrets.token_bytes(16),
        topic,
        partitions,
        known,
        batch_rows,
        timeout,
        in_microseconds,
        key is not None,
    )
    begun = time.monotonic()
    try:
        news = frame.mapInArrow(task, NEWS_SCHEMA).collect()
    except PySparkException as error:
        raise OutcomeUnknown(
            f"the Spark job that schedules in {topic!r} failed; some rows may have been scheduled: {error}"
        ) from error
    return _report(news, time.monotonic() - begun)


def _report(news: Iterable[Row], seconds: float) -> ScheduleReport:
    report = ScheduleReport(seconds=seconds)
    refusals: list[tuple[str, str]] = []
    for row in news:
        if row.refusal is not None:
            refusals.append((row.refusal, row.why))
            continue
        report.rows += row.rows
        report.messages += row.rows
        report.per_partition[row.partition] = report.per_partition.get(row.partition, 0) + row.rows
        report.ids.update(zip(row.keys, row.ids, strict=True))
    if refusals:
        name, why = refusals[0]
        more = f"; {len(refusals) - 1} further tasks were refused too" if len(refusals) > 1 else ""
        kind = getattr(dueq.errors, name, Refused)
        raise kind(f"{why}{more}; {report.messages} other messages have been scheduled")
    report.per_partition = dict(sorted(report.per_partition.items()))
    return report

"""`dueq.spark.schedule`: one call, one job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.storagelevel import StorageLevel

from dueq import Client
from dueq.client.arguments import count, endpoint_list
from dueq.client.payloads import shared_body
from dueq.errors import InvalidRequest, OutcomeUnknown
from dueq.limits import REQUEST_ROWS_MAX
from dueq.spark.columns import REASON, ROW, message_columns
from dueq.spark.failures import cause
from dueq.spark.loading import (
    HIDDEN_FOR_S,
    PATIENCE_S,
    abort,
    begin,
    commit,
    horizon_end_ms,
    reach,
    topic_of,
)
from dueq.spark.order import in_settled_order, in_settled_places
from dueq.spark.report import ScheduleReport
from dueq.spark.task import NEWS_SCHEMA, Load

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ON_ERROR: Final = ("fail", "collect")


def schedule(
    df: DataFrame,
    *,
    topic: str,
    due: str | Column,
    payload: str | Column | None = None,
    key: str | Column | None = None,
    rank: str | Column | None = None,
    group: str | Column | None = None,
    body: bytes | None = None,
    job_id: str | None = None,
    atomic: bool = False,
    on_error: str = "fail",
    ids: bool = False,
    endpoints: str | Sequence[str] | None = None,
    batch_rows: int = REQUEST_ROWS_MAX,
    timeout: float = PATIENCE_S,
    hidden_for: float = HIDDEN_FOR_S,
) -> ScheduleReport:
    """Schedule every row of a DataFrame; returns when all of them are committed.

    **Once.** A task that Spark runs again (a failure, speculation) makes the very same requests, which the mesh
    recognizes for 7 days. For this, rows that come through a shuffle are sorted inside their partition. A call with
    the same `job_id` and the same rows schedules nothing twice, not even on another cluster. The rows are then
    shuffled into an order that follows from their content. Other rows under the same `job_id`, or the same ones with
    another `batch_rows`, are refused (`SequenceReused`) if they take the place of earlier ones, and the rows after
    them are not sent. Rows that Spark computes again each time (`rand()`, `uuid()`) are other rows.

    **All or nothing.** With `atomic` the job is hidden until all tasks have succeeded. Before that none of its
    messages is delivered. If the call fails or this process dies, none is ever delivered. A load that an earlier call
    with this `job_id` left unfinished is withdrawn first. If that call had succeeded, nothing is sent. The rows are
    then only counted, and not compared with those that were loaded.

    **Back-pressure.** While the mesh is busy, or short of replicas or disk, tasks wait and repeat their request, up
    to `timeout`. Only then do they fail, and Spark repeats them.

    Args:
        df: the rows; dueq must be installed where the executors run.
        topic: an existing topic.
        due: a column (or its name) of timestamps, or of Unix ms as bigint; any expression of such a type.
            Timestamps are rounded up to ms.
        payload: a column (or its name) of binary or string (sent as UTF-8). None, or "json" where there is no
            column of that name: the row as JSON, all columns but those that `due`, `key`, `rank` and `group` name.
        rank: a column (or its name) of whole numbers, 0 to 65,535; null: 0. For a topic of kind priority or fair.
        group: a column (or its name) of texts such as "acme.reports"; null or empty: none. For a topic of kind fair.
        key: a column (or its name) whose text, at most 255 bytes of UTF-8, becomes the message's key; null: none.
        body: one payload for all messages, which each partition of the topic stores once: at most 224 KiB. There is no
            other payload then, and rows are told apart by their keys.
        job_id: the job's name; None draws one. A topic remembers 4,096 jobs for 7 days.
        atomic: all or nothing.
        on_error: how to treat rows that cannot be messages (due null or out of range, payload null or too long, key
            too long, no rank or group). "fail" raises on the first; "collect" leaves them out and returns them as
            `ScheduleReport.rejected`.
        ids: whether to report message ids by key, to move and cancel later. All ids come to the driver: leave it
            out for millions.
        endpoints: brokers as the executors reach them; None for DUEQ_ENDPOINTS as it is on the driver.
        batch_rows: rows of one request, 1 to 1,024.
        timeout: seconds for each request.
        hidden_for: with `atomic`, seconds after which the mesh itself withdraws a job that was not committed; longer
            than the load takes, and at most 7 days. Messages that are due sooner are revealed one by one after the
            commit: longer than needed costs that.

    Returns:
        The report.

    Raises:
        InvalidRequest: a column is missing or of a wrong type (before anything runs), or a row cannot be a message;
            the text names it. Without `atomic`, other rows may have been scheduled.
        TopicNotFound: there is no such topic.
        Disconnected: no broker is reached, from the driver or from an executor; the text says which.
        JobEnded: the job was cancelled, or `hidden_for` was too short.
        Refused: the mesh refused a request (SequenceReused, …).
        OutcomeUnknown: the Spark job failed for another reason; without `atomic` some rows may have been scheduled.
    """
    rows_max = count(batch_rows, "batch_rows", 1, REQUEST_ROWS_MAX)
    if on_error not in ON_ERROR:
        raise InvalidRequest(f"on_error is one of {', '.join(ON_ERROR)}, not {on_error!r}")
    if ids and key is None:
        raise InvalidRequest("ids=True reports ids by key: name a key column")
    if body is not None:
        if payload is not None:
            raise InvalidRequest(
                f"a message has a payload or the shared body, not both: payload={payload!r:.80}"
            )
        payload = F.lit(b"")
    shared = shared_body(body).data if body is not None else b""
    columns = message_columns(df, due, payload, key, rank=rank, group=group)
    known = tuple(endpoint_list(endpoints))
    began = time.monotonic()
    with Client(known, timeout=timeout) as client:
        reach(client, known)
        info = topic_of(client, topic)
        begun = begin(client, topic, job_id, hidden_for if atomic else None)
        load = Load(
            begun.job.key, topic, info.home_partitions, known, rows_max, timeout, begun.job, begun.began_ms,
            keyed=key is not None, with_ids=ids, collect=on_error == "collect", send=not begun.complete,
            shared=shared, ranked=rank is not None, grouped=group is not None,
        )  # fmt: skip
        last_due_ms = horizon_end_ms(info, begun.began_ms)
        frame = columns.checked(info.payload_bytes_max, last_due_ms, load.collect)
        if job_id is not None and not atomic:
            frame = in_settled_places(frame, 2 * info.home_partitions)
        else:
            frame = in_settled_order(frame)
        try:
            report = _run(frame, load, atomic)
            commit(client, begun, report.messages)
        except BaseException:
            abort(client, begun)
            raise
    return replace(report, job_id=begun.job.job_id, seconds=time.monotonic() - began)


def _run(frame: DataFrame, load: Load, atomic: bool) -> ScheduleReport:
    """Run the Spark job."""
    report = ScheduleReport()
    news = frame.mapInArrow(load, NEWS_SCHEMA)
    try:
        if load.collect:
            # Kept where it was computed, and never computed again: that would send everything once more.
            news = news.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
            rejected = news.where(F.col(REASON).isNotNull()).select(
                F.col("task").alias("spark_partition"), "place", REASON, ROW
            )
            report.rejected, report.rejected_rows = rejected, rejected.count()
            report.rows = report.rejected_rows
            news = news.where(F.col(REASON).isNull())
        report.add(news.collect())
    except PySparkException as error:
        known = cause(error)
        if known is not None:
            raise known from None
        left = "nothing of it is delivered" if atomic else "some rows may have been scheduled"
        raise OutcomeUnknown(
            f"the Spark job that schedules in {load.topic!r} failed; {left}: {error}"
        ) from error
    return report

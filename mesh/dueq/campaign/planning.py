"""The plan of a campaign: every message made, counted, and given its instant; nothing is sent yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pandas as pd
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.storagelevel import StorageLevel

from dueq.campaign.counts import Counts
from dueq.campaign.preparing import BAD, DUPLICATE, GAP, PAST, QUIET, SUPPRESSED, TWICE, prepared
from dueq.campaign.report import CampaignReport
from dueq.campaign.smoothing import Slots, smoothed
from dueq.campaign.sources import first_line
from dueq.campaign.spec import Smoothing, Spec
from dueq.client.numbered import mesh_time_ms
from dueq.errors import InvalidRequest
from dueq.limits import DUE_MS_MAX
from dueq.spark import register
from dueq.spark.failures import cause
from dueq.spark.loading import horizon_end_ms, topic_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dueq import Client

SECONDS_MAX: Final = 5_000_000
"""Different seconds that a smoothed campaign may have: their counts come to the driver."""
_REASONS_MAX: Final = 20
_PLACE_BITS: Final = 33
"""`monotonically_increasing_id` has the row's number in its Spark partition in these bits, that one's above."""
_FATES: Final = {BAD: "bad", SUPPRESSED: "suppressed", DUPLICATE: "duplicates", PAST: "past"}


@dataclass(frozen=True)
class Plan:
    """A campaign that could be loaded now.

    Attributes:
        frame: `due` (Unix ms), `payload`, `key` of each message; what it is made of is kept on the executors' disks.
        report: what is known so far.
        before, after: messages by minute, as the specification has their dues, and as they will leave.
        existing: what waits in the topic in these minutes, where smoothing looked.
    """

    frame: DataFrame
    report: CampaignReport
    before: Counts
    after: Counts
    existing: Counts


@contextmanager
def planned(
    spark: SparkSession, client: Client, endpoints: Sequence[str], spec: Spec, tell: Callable[[str], None]
) -> Iterator[Plan]:
    """Plan a campaign; what was kept for it is given back at the end.

    Args:
        spark: the session.
        client: of the mesh.
        endpoints: of the mesh, as the executors reach it.
        spec: the campaign.
        tell: called with what is being done.

    Raises:
        InvalidRequest: a column, a type, a zone or a row does not do, or a crowd does not fit; the text says which.
        TopicNotFound
    """
    info = topic_of(client, spec.topic)
    now_ms = mesh_time_ms(client)
    began = time.monotonic()
    kept: list[DataFrame] = []
    try:
        with _said_plainly():
            tell("reading the source")
            last_ms = horizon_end_ms(info, now_ms) or DUE_MS_MAX
            rows = prepared(spark, spec, now_ms, info.payload_bytes_max, last_ms)
            rows = rows.persist(StorageLevel.DISK_ONLY)
            kept.append(rows)
            report = _counted(rows, spec)
            messages = rows.where(F.col("fate").isNull())
            before = _counts(messages, "asked", 60_000)
            after = _counts(messages, "due", 60_000)
            existing = Counts.nothing()
            if spec.smoothing is not None and report.messages:
                tell("smoothing")
                slots, existing = _slots(spark, endpoints, spec.topic, messages, spec.smoothing, report)
                report.per_second, report.longest_delay_s = slots.per_second, slots.longest_s
                after, existing = slots.after.coarser(60), existing.coarser(60)
                if not slots.smooth:
                    messages = _in_order(messages).persist(StorageLevel.DISK_ONLY)
                    kept.append(messages)
                    messages = _assigned(messages, slots)
                    report.delayed, report.last_ms = _delays(messages)
            report.busiest_minute_before, report.busiest_minute = before.peak, after.peak
            report.planning_s = round(time.monotonic() - began, 3)
        yield Plan(messages.select("due", "payload", "key"), report, before, after, existing)
    finally:
        for frame in kept:
            frame.unpersist()


@contextmanager
def _said_plainly() -> Iterator[None]:
    """What Spark finds wrong with the data (a torn file, a value that cannot be cast) in one sentence."""
    try:
        yield
    except PySparkException as error:
        known = cause(error)
        if known is not None:
            raise known from error
        raise InvalidRequest(f"Spark cannot make messages of these rows: {first_line(error)}") from error


def _counted(rows: DataFrame, spec: Spec) -> CampaignReport:
    """Count everything in one pass (which also computes and keeps the rows), and refuse what is to be refused.

    Raises:
        InvalidRequest: rows are bad or past, and the specification does not want them skipped.
    """
    groups = rows.groupBy("fate", "reason").agg(
        F.count(F.lit(1)).alias("rows"), *[F.count_if(flag).alias(flag) for flag in (GAP, TWICE, QUIET)],
        F.min("due").alias("first"), F.max("due").alias("last"),
    ).collect()  # fmt: skip
    report = CampaignReport(spec.name, spec.topic)
    for group in groups:
        report.rows += group["rows"]
        if group["fate"] is None:
            report.messages += group["rows"]
            report.first_ms, report.last_ms = group["first"], group["last"]
            report.nonexistent, report.ambiguous = group[GAP], group[TWICE]
            report.quiet_moved = group[QUIET]
            continue
        name = _FATES[group["fate"]]
        setattr(report, name, getattr(report, name) + group["rows"])
        if group["fate"] == BAD:
            report.reasons[group["reason"]] = group["rows"]
    if report.bad and spec.loading.bad_rows == "refuse":
        said = "; ".join(
            f"{count:,}: {reason}" for reason, count in sorted(report.reasons.items())[:_REASONS_MAX]
        )
        raise InvalidRequest(
            f"{report.bad:,} of {report.rows:,} rows cannot be messages "
            f'([load] bad_rows = "skip" leaves them out): {said}'
        )
    if report.past and spec.due.past == "refuse":
        raise InvalidRequest(
            f"{report.past:,} of {report.rows:,} messages are due already; "
            '[due] past = "skip" leaves them out, "send" has them delivered at once'
        )
    return report


def _counts(messages: DataFrame, column: str, unit_ms: int) -> Counts:
    """Messages by second or minute."""
    at = ((F.col(column) - F.pmod(F.col(column), F.lit(unit_ms))) / F.lit(unit_ms)).cast("bigint")
    found = messages.groupBy(at.alias("at")).count().toArrow()
    return Counts.of(found.column("at").to_numpy(), found.column("count").to_numpy())


def _slots(
    spark: SparkSession,
    endpoints: Sequence[str],
    topic: str,
    messages: DataFrame,
    smoothing: Smoothing,
    report: CampaignReport,
) -> tuple[Slots, Counts]:
    """Plan over seconds.

    Raises:
        InvalidRequest: the window is too short, or the campaign has too many different seconds.
    """
    arriving = _counts(messages, "due", 1000)
    if len(arriving.at) > SECONDS_MAX:
        raise InvalidRequest(
            f"[smoothing] the campaign has messages in {len(arriving.at):,} different seconds; "
            f"at most {SECONDS_MAX:,} can be smoothed"
        )
    existing = Counts.nothing()
    if smoothing.existing and report.first_ms is not None:
        # Exact for any time ahead, and counted by the executors; `forecast` knows the next hour.
        register(spark)
        waiting = spark.read.format("dueq").options(
            topic=topic, endpoints=",".join(endpoints), start=str(report.first_ms // 1000 * 1000),
            end=str((int(arriving.at[-1]) + smoothing.window_s + 1) * 1000),
        )  # fmt: skip
        existing = _counts(waiting.load().select(F.unix_millis("waits_until").alias("due")), "due", 1000)
    return smoothed(arriving, existing, smoothing.per_second, smoothing.window_s), existing


def _in_order(messages: DataFrame) -> DataFrame:
    """Sort by due; ties by what the messages hold, so that their places are the same each time."""
    return messages.orderBy("due", "key", "payload").withColumn("number", F.monotonically_increasing_id())


def _assigned(messages: DataFrame, slots: Slots) -> DataFrame:
    """Give each message its instant, by its place among all: that in its Spark partition, and how many are before."""
    partition = F.shiftright("number", _PLACE_BITS)
    sizes = dict(messages.groupBy(partition.alias("partition")).count().collect())
    before, offsets = 0, {}
    for number in sorted(sizes):
        offsets[number] = before - (number << _PLACE_BITS)
        before += sizes[number]
    instant = F.pandas_udf(_instants(slots, offsets), "bigint")
    return messages.withColumn("moved", instant("number", "due")).select(
        F.col("moved").alias("due"), (F.col("moved") - F.col("due")).alias("delay"), "payload", "key"
    )


def _instants(slots: Slots, offsets: dict[int, int]) -> Callable[[pd.Series, pd.Series], pd.Series]:
    def instants(number: pd.Series, due: pd.Series) -> pd.Series:
        place = number + (number // (1 << _PLACE_BITS)).map(offsets)
        return pd.Series(slots.instants(place.to_numpy(), due.to_numpy()))

    return instants


def _delays(messages: DataFrame) -> tuple[int, int]:
    """How many are moved, and when the last one leaves."""
    row = messages.agg(F.count_if(F.col("delay") > 0).alias("moved"), F.max("due").alias("last")).first()
    return int(row["moved"]), int(row["last"])

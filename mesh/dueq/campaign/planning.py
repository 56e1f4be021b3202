"""The plan of a campaign: every message made, counted, and given its instant; nothing is sent yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.storagelevel import StorageLevel

from dueq.campaign.counts import Counts
from dueq.campaign.preparing import BAD, DUPLICATE, GAP, PAST, QUIET, SUPPRESSED, TWICE, prepared
from dueq.campaign.report import CampaignReport
from dueq.campaign.sources import first_line
from dueq.campaign.spec import Spec
from dueq.campaign.spreading import counted, spread
from dueq.client.numbered import mesh_time_ms
from dueq.errors import InvalidRequest
from dueq.limits import DUE_MS_MAX
from dueq.spark.failures import cause
from dueq.spark.loading import horizon_end_ms, topic_of
from dueq.time_text import instant_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dueq import Client

_REASONS_MAX: Final = 20
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
    """Plan a campaign; storage that was used for it is freed at the end.

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

    def keep(frame: DataFrame) -> None:
        kept.append(frame.persist(StorageLevel.DISK_ONLY))

    try:
        with _said_plainly():
            tell("reading the source")
            last_ms = horizon_end_ms(info, now_ms) or DUE_MS_MAX
            rows = prepared(spark, spec, now_ms, info.payload_bytes_max, last_ms)
            keep(rows)
            report = _counted(rows, spec)
            messages = rows.where(F.col("fate").isNull())
            before, existing = counted(messages, "asked", 60), Counts.nothing()
            if spec.smoothing is not None and report.messages:
                tell("smoothing")
                spreading = spread(spark, endpoints, spec, messages, keep)
                if spreading.last_ms > last_ms:
                    raise InvalidRequest(
                        f"[smoothing] the last messages would leave at {instant_text(spreading.last_ms)}, "
                        f"beyond the topic's horizon ({instant_text(last_ms)}); raise per_second"
                    )
                messages, after = spreading.messages, spreading.slots.after.coarser(60)
                existing = spreading.existing.coarser(60)
                report.per_second, report.longest_delay_s = (
                    spreading.slots.per_second,
                    spreading.slots.longest_s,
                )
                report.delayed = spreading.delayed
                report.first_ms, report.last_ms = spreading.first_ms, spreading.last_ms
                report.quiet_moved += spreading.put_off
            else:
                after = counted(messages, "due", 60)
            report.busiest_minute_before, report.busiest_minute = before.peak, after.peak
            report.planning_s = round(time.monotonic() - began, 3)
        yield Plan(messages.select("due", "payload", "key", *spec.placing), report, before, after, existing)
    finally:
        for frame in kept:
            frame.unpersist()


@contextmanager
def _said_plainly() -> Iterator[None]:
    """Spark's complaint about the data (a torn file, a value that cannot be cast) in one sentence."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        known = cause(error)
        if known is not None:
            raise known from error
        raise InvalidRequest(f"Spark cannot make messages of these rows: {first_line(error)}") from error


def _counted(rows: DataFrame, spec: Spec) -> CampaignReport:
    """Count everything in one pass, which also computes and keeps the rows; refuse bad and past rows if the
    specification says so.

    Raises:
        InvalidRequest: rows are bad or past, and the specification does not skip them.
    """
    groups = rows.groupBy("fate", "reason").agg(
        F.count(F.lit(1)).alias("rows"), *[F.count_if(flag).alias(flag) for flag in (GAP, TWICE, QUIET)],
        F.min("due").alias("first"), F.max("due").alias("last"), F.min("said").alias("said"),
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
            such_as = f" (such as {group['said']!r:.60})" if group["said"] is not None else ""
            report.reasons[group["reason"] + such_as] = group["rows"]
    if report.bad and spec.loading.bad_rows == "refuse":
        said = "; ".join(
            f"{count:,}: {reason}" for reason, count in sorted(report.reasons.items())[:_REASONS_MAX]
        )
        raise InvalidRequest(
            f"{report.bad:,} of {report.rows:,} rows cannot be messages "
            f'([load] bad_rows = "skip" leaves them out): {said}'
        )
    if report.past and spec.due.past == "refuse":
        hint = '[due] past = "skip" leaves them out, "send" has them delivered at once'
        if not spec.loading.atomic:
            hint += "; either makes it another campaign: cancel this one first if a part of it was loaded"
        raise InvalidRequest(f"{report.past:,} of {report.rows:,} messages are due already; {hint}")
    return report

"""Smoothing applied to rows: the driver plans over seconds, the executors give each message its instant.

Smoothing knows nothing of quiet hours. A message that it would push into quiet hours waits until they end, as if it
had been due then from the beginning. Then all are smoothed again, until no message is in quiet hours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pandas as pd
from pyspark.sql import functions as F  # noqa: N812

from dueq.campaign.counts import Counts
from dueq.campaign.local_time import with_quiet_end
from dueq.campaign.preparing import ZONE, whole
from dueq.campaign.smoothing import Slots, smoothed
from dueq.campaign.spec import QuietHours, Smoothing, Spec
from dueq.errors import InvalidRequest
from dueq.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECONDS_MAX: Final = 5_000_000
"""Most different seconds of a smoothed campaign: their counts come to the driver."""
ROUNDS_MAX: Final = 12
"""Each puts some messages off to the end of their quiet hours, which is where the next crowd is."""
_PLACE_BITS: Final = 33
"""`monotonically_increasing_id` has the row's number in its Spark partition in these bits, that one's above."""


@dataclass(frozen=True)
class Spread:
    """A smoothed campaign.

    Attributes:
        messages: with their instants in `due`.
        slots: the last round's plan.
        existing: what waits in the topic, by second.
        delayed: messages that leave later than they would without smoothing.
        put_off: messages that wait for the end of quiet hours which smoothing would have pushed them into.
        first_ms, last_ms: when the first and the last leave, Unix ms.
    """

    messages: DataFrame
    slots: Slots
    existing: Counts
    delayed: int
    put_off: int
    first_ms: int
    last_ms: int


def counted(messages: DataFrame, column: str, unit_s: int) -> Counts:
    """Count messages by a number of seconds.

    Args:
        messages: any frame.
        column: instants in it, Unix ms.
        unit_s: 1: by second, 60: by minute.
    """
    found = messages.groupBy(whole(F.col(column), unit_s * 1000).alias("at")).count().toArrow()
    return Counts.of(found.column("at").to_numpy(), found.column("count").to_numpy())


def spread(
    spark: SparkSession,
    endpoints: Sequence[str],
    spec: Spec,
    messages: DataFrame,
    keep: Callable[[DataFrame], None],
) -> Spread:
    """Smooth a campaign.

    Args:
        spark: the session.
        endpoints: of the mesh, as the executors reach it.
        spec: has smoothing.
        messages: at least one; `due` (Unix ms), `payload`, `key`, and with quiet hours their zone.
        keep: has a frame stored until the campaign is loaded.

    Raises:
        InvalidRequest: the window is too short, the campaign has too many different seconds, or is never out of
            quiet hours.
    """
    smoothing, quiet = spec.smoothing, spec.quiet_hours
    assert smoothing is not None
    zone = [ZONE] if quiet is not None else []
    rows = messages.select("due", F.col("due").alias("wanted"), "payload", "key", *zone, *spec.placing)
    for _ in range(ROUNDS_MAX):
        arriving = counted(rows, "due", 1)
        if len(arriving.at) > SECONDS_MAX:
            raise InvalidRequest(
                f"[smoothing] the campaign has messages in {len(arriving.at):,} different seconds; "
                f"at most {SECONDS_MAX:,} can be smoothed"
            )
        existing = _waiting(spark, endpoints, spec.topic, arriving, smoothing)
        slots = smoothed(arriving, existing, smoothing.per_second, smoothing.window_s)
        if slots.smooth:
            return _done(rows, slots, existing)
        ordered = _in_order(rows)
        keep(ordered)
        moved = _assigned(ordered, slots)
        if quiet is None:
            return _done(moved, slots, existing)
        rows = _put_off(moved, quiet)
        keep(rows)
        if not rows.where(F.col("ends").isNotNull()).limit(1).count():
            return _done(rows, slots, existing)
        rows = rows.withColumn("due", F.coalesce("ends", "before")).drop("ends", "before")
    raise InvalidRequest(
        f"[smoothing] after {ROUNDS_MAX} rounds some messages are still pushed from one end of quiet hours into the "
        "next ones; raise per_second"
    )


def _waiting(
    spark: SparkSession, endpoints: Sequence[str], topic: str, arriving: Counts, smoothing: Smoothing
) -> Counts:
    """Messages that wait in the topic while the campaign may leave; executors count them, exactly at any distance."""
    if not smoothing.existing:
        return Counts.nothing()
    register(spark)
    waiting = spark.read.format("dueq").options(
        topic=topic, endpoints=",".join(endpoints), start=str(int(arriving.at[0]) * 1000),
        end=str((int(arriving.at[-1]) + smoothing.window_s + 1) * 1000),
    )  # fmt: skip
    return counted(waiting.load().select(F.unix_millis("waits_until").alias("due")), "due", 1)


def _in_order(rows: DataFrame) -> DataFrame:
    """Sort by due; ties by what the messages hold, so that their places are the same each time."""
    ties = [name for name in ("key", "payload", "rank", "group", ZONE) if name in rows.columns]
    return rows.orderBy("due", *ties).withColumn("number", F.monotonically_increasing_id())


def _assigned(rows: DataFrame, slots: Slots) -> DataFrame:
    """Give each message its instant, by its place among all: that in its Spark partition, and how many are before."""
    partition = F.shiftright("number", _PLACE_BITS)
    sizes = dict(rows.groupBy(partition.alias("partition")).count().collect())
    before, offsets = 0, {}
    for number in sorted(sizes):
        offsets[number] = before - (number << _PLACE_BITS)
        before += sizes[number]
    instant = F.pandas_udf(_instants(slots, offsets), "bigint")
    moved = rows.withColumns({"before": F.col("due"), "due": instant("number", "due")})
    return moved.drop("number")


def _instants(slots: Slots, offsets: dict[int, int]) -> Callable[[pd.Series, pd.Series], pd.Series]:
    def instants(number: pd.Series, due: pd.Series) -> pd.Series:
        place = number + (number // (1 << _PLACE_BITS)).map(offsets)
        return pd.Series(slots.instants(place.to_numpy(), due.to_numpy()))

    return instants


def _put_off(moved: DataFrame, quiet: QuietHours) -> DataFrame:
    """Add `ends`: Unix ms at which the quiet hours end that a message would leave in; null: it would not."""
    rows = moved.withColumn("due_us", F.col("due") * F.lit(1000))
    rows = with_quiet_end(rows, "due_us", ZONE, quiet.from_s, quiet.until_s, "ends_us")
    return rows.withColumn("ends", whole(F.col("ends_us"), 1000)).drop("due_us", "ends_us")


def _done(rows: DataFrame, slots: Slots, existing: Counts) -> Spread:
    wanted, due = F.col("wanted"), F.col("due")
    start = F.col("before") if "before" in rows.columns else due
    row = rows.agg(
        F.count_if(due > start).alias("delayed"), F.count_if(start > wanted).alias("put_off"),
        F.min("due").alias("first"), F.max("due").alias("last"),
    ).first()  # fmt: skip
    return Spread(
        rows, slots, existing, int(row["delayed"]), int(row["put_off"]), int(row["first"]), int(row["last"])
    )

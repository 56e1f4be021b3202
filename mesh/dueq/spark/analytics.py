"""Evaluates what `dueq export` wrote: lateness, load, senders.

    dueq export EXPORT_DIR
    python -m dueq.spark.analytics EXPORT_DIR OUT_DIR
    spark-submit --master … "$(python -c 'import dueq.spark.analytics as a; print(a.__file__)')" EXPORT_DIR OUT_DIR

OUT_DIR gets, each as CSV and PNG: `lateness` (percentiles by hour and topic), `load` (what waits, by hour and topic; as
a picture days over hours of the day, UTC), `senders` (who scheduled most in the last week). With folders that Spark
reaches but this machine does not, call `lateness`, `load` and `senders` and write the frames yourself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from dueq.errors import InvalidRequest
from dueq.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
_TOPICS_SHOWN: Final = 8
_SENDERS_SHOWN: Final = 20
_DAYS_SHOWN: Final = 92
_MARGIN: Final = np.timedelta64(1, "h")
_TIMELINES: Final = "topic string, waits_until timestamp, size int"
"""Stated, since a mesh without topics leaves no file to learn it from."""


def lateness(deliveries: DataFrame) -> DataFrame:
    """Return lateness by topic and hour.

    Brokers count first deliveries in buckets. A percentile is the upper bound of its bucket, so at most one bucket
    too high; beyond the last bound it is infinite.

    Args:
        deliveries: statistics/deliveries.parquet.

    Returns:
        `topic`, `hour`, `delivered`, `redelivered`, and for each of PERCENTILES a column such as `p99_ms`; in order
        of topic and hour.
    """
    totals = deliveries.groupBy("topic", "hour").agg(
        F.sum("delivered").alias("delivered"), F.sum("redelivered").alias("redelivered")
    )
    bounds = F.concat("lateness_bounds_ms", F.array(F.lit(float("inf"))))
    pair = F.explode(F.arrays_zip(bounds.alias("bound"), F.col("lateness_counts").alias("count")))
    flat = deliveries.select("topic", "hour", pair.alias("bucket")).select("topic", "hour", "bucket.*")
    buckets = flat.groupBy("topic", "hour", "bound").agg(F.sum("count").alias("count"))
    cell = Window.partitionBy("topic", "hour")
    up_to = cell.orderBy("bound").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = buckets.select(
        "topic",
        "hour",
        "bound",
        F.sum("count").over(up_to).alias("below"),
        F.sum("count").over(cell).alias("all"),
    ).where(F.col("all") > 0)
    columns = [
        F.min(F.when(F.col("below") * 1000 >= F.col("all") * round(percentile * 10), F.col("bound"))).alias(
            column_of(percentile)
        )
        for percentile in PERCENTILES
    ]
    return totals.join(ranked.groupBy("topic", "hour").agg(*columns), ["topic", "hour"], "left").orderBy(
        "topic", "hour"
    )


def load(timelines: DataFrame) -> DataFrame:
    """Return how many messages wait until each hour: `topic`, `hour`, `messages`, `bytes`; in order.

    Args:
        timelines: the folder timelines.
    """
    hour = F.date_trunc("hour", "waits_until").alias("hour")
    sums = F.count("*").alias("messages"), F.sum(F.col("size").cast("bigint")).alias("bytes")
    return timelines.groupBy("topic", hour).agg(*sums).orderBy("topic", "hour")


def senders(counts: DataFrame) -> DataFrame:
    """Return who scheduled how many messages: `sender`, `topic`, `scheduled`; the greatest first.

    Args:
        counts: statistics/senders.parquet.
    """
    sums = counts.groupBy("sender", "topic").agg(F.sum("scheduled").alias("scheduled"))
    return sums.orderBy(F.desc("scheduled"), "sender", "topic")


def column_of(percentile: float) -> str:
    """Return a percentile's column: 99.9 → "p99_9_ms"."""
    return f"p{percentile:g}_ms".replace(".", "_")


def analyse(spark: SparkSession, export: Path, out: Path) -> list[Path]:
    """Write all tables and pictures.

    Args:
        spark: a session.
        export: what `dueq export` wrote.
        out: a folder; it is made.

    Returns:
        The files.

    Raises:
        InvalidRequest: `export` is not a complete export, or there is no matplotlib.
    """
    if find_spec("matplotlib") is None:
        raise InvalidRequest("the pictures need matplotlib: pip install 'dueq[spark,plot]'")
    if not (export / "manifest.json").is_file():
        raise InvalidRequest(
            f"{export} is no complete export: there is no manifest.json, which is written last"
        )
    out.mkdir(parents=True, exist_ok=True)
    zone = spark.conf.get("spark.sql.session.timeZone")
    # Hours are the mesh's, wherever this runs: UTC.
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        deliveries = spark.read.parquet(str(export / "statistics" / "deliveries.parquet"))
        late = lateness(deliveries).toPandas()
        timelines = spark.read.schema(_TIMELINES).parquet(str(export / "timelines"))
        ahead = load(timelines).toPandas()
        who = senders(spark.read.parquet(str(export / "statistics" / "senders.parquet"))).toPandas()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    written = []
    for name, table, draw in (
        ("lateness", late, _draw_lateness),
        ("load", ahead, _draw_load),
        ("senders", who, _draw_senders),
    ):
        table.to_csv(out / f"{name}.csv", index=False)
        _picture(table, draw, out / f"{name}.png")
        written += [out / f"{name}.csv", out / f"{name}.png"]
    return written


# ---------------------------------------------------------------- pictures


def _picture(table: Any, draw: Any, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    if len(table):
        draw(figure, axes, table)
    else:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "nothing yet", ha="center", va="center", fontsize=16)
    figure.savefig(path, dpi=120)


def _draw_lateness(figure: Any, axes: Any, table: Any) -> None:
    known = table[table["delivered"] > table["redelivered"]]
    largest = known.groupby("topic")["delivered"].sum().nlargest(_TOPICS_SHOWN).index
    for place, topic in enumerate(largest):
        rows = known[known["topic"] == topic]
        axes.plot(rows["hour"], rows["p99_ms"], marker="o", color=f"C{place}", label=f"{topic} p99")
        axes.plot(
            rows["hour"], rows["p50_ms"], marker=".", color=f"C{place}", linestyle=":", label=f"{topic} p50"
        )
    axes.set_yscale("log")
    axes.set_ylabel("lateness, ms")
    axes.set_xlabel("hour, UTC")
    axes.set_title("Lateness of first deliveries")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")
    if len(known):
        axes.set_xlim(known["hour"].min() - _MARGIN, known["hour"].max() + _MARGIN)
    figure.autofmt_xdate()


def _draw_load(figure: Any, axes: Any, table: Any) -> None:
    from matplotlib.colors import LogNorm

    hours = table["hour"].dt
    grid = table.assign(day=hours.date, hour_of_day=hours.hour).pivot_table(
        index="day", columns="hour_of_day", values="messages", aggfunc="sum", fill_value=0
    )
    days, grid = len(grid), grid.reindex(columns=range(24), fill_value=0).head(_DAYS_SHOWN)
    # A logarithm, as one hour may have ten thousand times what another has; an hour without any is left blank.
    image = axes.imshow(
        np.ma.masked_equal(grid.to_numpy(dtype=float), 0), aspect="auto", cmap="viridis", norm=LogNorm(vmin=1)
    )
    figure.colorbar(image, label="messages")
    step = -(-len(grid) // 30)
    axes.set_yticks(range(0, len(grid), step), [str(day) for day in grid.index[::step]])
    axes.set_xticks(range(0, 24, 2))
    axes.set_xlabel("hour of the day, UTC")
    left_out = (
        f" (the first {_DAYS_SHOWN} of {days} days with any)" if days > _DAYS_SHOWN else " (days with any)"
    )
    axes.set_title("Messages that wait, by the hour until which they do" + left_out)


def _draw_senders(figure: Any, axes: Any, table: Any) -> None:
    first = table.head(_SENDERS_SHOWN)[::-1]
    names = [
        f"{sender[:16]} → {topic}" for sender, topic in zip(first["sender"], first["topic"], strict=True)
    ]
    axes.barh(range(len(first)), first["scheduled"])
    axes.set_yticks(range(len(first)), names)
    axes.set_xlabel("messages scheduled in the last week")
    axes.set_title("Top senders")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m dueq.spark.analytics", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("export", type=Path, metavar="EXPORT_DIR", help="what `dueq export` wrote")
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="where CSV and PNG files go")
    chosen = parser.parse_args(arguments)
    try:
        for path in analyse(spark_session("dueq analytics"), chosen.export, chosen.out):
            print(path)
    except InvalidRequest as error:
        print(f"dueq analytics: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

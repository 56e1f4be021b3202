"""From rows to messages: which are sent, to whom and when, and which are left out, and why.

Every row goes through the same steps. Payload, key and due are made; it is *bad* if one of them cannot be made. It is
*suppressed* if it is on the list. Quiet hours move it. It is *past* if it is due already. It is a *duplicate* if an
equal row among the remaining ones is kept. Rows that are left out stay in the frame with their fate, so that one pass
over it counts everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from dueq.campaign.local_time import Zones, day_of, local_us, time_of, with_instants, with_quiet_end
from dueq.campaign.sources import as_written, column, rows_of, type_of, with_columns
from dueq.campaign.spec import Deduplication, Due, QuietHours, Spec, Suppression
from dueq.campaign.wording import payload_of
from dueq.errors import InvalidRequest
from dueq.limits import DUE_MS_MAX
from dueq.spark.columns import GROUP, RANK, group_column, rank_column, reason_of_placing
from dueq_codecs.meta import KEY_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

BAD, SUPPRESSED, DUPLICATE, PAST = "bad", "suppressed", "duplicate", "past"
GAP, TWICE, QUIET = "nonexistent", "ambiguous", "quiet"
_ASKED, _DUE, _PAYLOAD, _KEY, _REASON, _FATE = "asked", "due", "payload", "key", "reason", "fate"
_LOCAL, _LOCAL_ZONE, _LISTED, _BY, _SAID = "local", "local_zone", "listed", "by", "said"
ZONE: Final = "quiet_zone"
_US: Final = 1000
_TOO_LATE: Final = "due is beyond the topic's horizon once quiet hours are over"


def prepared(
    spark: SparkSession, spec: Spec, now_ms: int, payload_bytes_max: int, last_ms: int = DUE_MS_MAX
) -> DataFrame:
    """Return one row for each row of the source; nothing runs yet but what Spark needs to learn types.

    Args:
        spark: the session.
        spec: what to do.
        now_ms: mesh time; what is due before is past.
        payload_bytes_max: what the topic takes.
        last_ms: how far ahead it takes messages, Unix ms.

    Returns:
        `due` and `asked` (Unix ms, with and without quiet hours), `payload`, `key` (string, null: none), `fate` (null:
        to be sent; else bad, suppressed, duplicate or past), `reason` (of bad rows; `said`: the zone that is unknown),
        of what is sent whether its local time was `nonexistent` or `ambiguous`, and whether `quiet` hours moved it;
        where there are quiet hours, their zone (`quiet_zone`).

    Raises:
        InvalidRequest: the source, a column or a time zone is not there, or of another type.
    """
    frame = with_columns(rows_of(spark, spec.source, "source"), spec.columns, "columns")
    zones = Zones.of(spark)
    chosen = {
        **_dues(frame, spec.due, zones),
        _PAYLOAD: payload_of(frame, spec.payload),
        _KEY: column(frame, spec.key, "key").cast(StringType())
        if spec.key
        else F.lit(None).cast(StringType()),
    }
    for name, of, made_of in ((RANK, spec.rank, rank_column), (GROUP, spec.group, group_column)):
        if of:
            chosen[name] = made_of(frame, column(frame, of, name))
    zone = spec.due.zone.column or (spec.quiet_hours.zone.column if spec.quiet_hours is not None else "")
    chosen[_SAID] = column(frame, zone, "zone").cast(StringType()) if zone else F.lit(None).cast(StringType())
    if spec.quiet_hours is not None:
        chosen[ZONE] = zones.known(frame, spec.quiet_hours.zone, "[quiet_hours]")
    if spec.suppression is not None:
        chosen[_LISTED] = _comparable(frame, spec.suppression.column, "[suppression] column")
    if spec.deduplication is not None:
        by = [column(frame, name, "[deduplication] by") for name in spec.deduplication.by]
        chosen[_BY] = F.struct(*[one.alias(f"by{i}") for i, one in enumerate(by)])
    rows = _asked(frame.select(*[made.alias(name) for name, made in chosen.items()]), spec.due)
    found = _fault(payload_bytes_max, last_ms, spec.quiet_hours is not None)
    fault = F.coalesce(F.col(_REASON), reason_of_placing(found, spec.placing))
    rows = rows.withColumn(_REASON, fault)
    rows = rows.withColumn(_FATE, F.when(F.col(_REASON).isNotNull(), F.lit(BAD)))
    if spec.suppression is not None:
        kind = type_of(frame, column(frame, spec.suppression.column, "[suppression] column"))
        rows = _suppressed(spark, rows, spec.suppression, kind)
    # A past row that is sent all the same leaves now, and now may be in quiet hours.
    wanted = F.greatest(F.col(_ASKED), F.lit(now_ms)) if spec.due.past == "send" else F.col(_ASKED)
    rows = _outside_quiet_hours(rows, wanted, spec.quiet_hours)
    late = F.when(F.col(QUIET) & (F.col(_DUE) > last_ms), F.lit(_TOO_LATE))
    rows = rows.withColumn(_REASON, F.coalesce(F.col(_REASON), late))
    rows = _fated(rows, F.col(_REASON).isNotNull(), BAD)
    if spec.due.past != "send":
        rows = _fated(rows, F.col(_DUE) < F.lit(now_ms), PAST)
    if spec.deduplication is not None:
        rows = _deduplicated(rows, spec.deduplication)
    good = F.col(_FATE).isNull()
    return rows.select(
        _DUE, _ASKED, F.when(good, F.col(_PAYLOAD)).alias(_PAYLOAD), _KEY, _FATE, _REASON,
        F.when(F.col(_REASON).contains("time zone"), F.col(_SAID)).alias(_SAID),
        *([ZONE] if spec.quiet_hours is not None else []), *spec.placing,
        *[(F.coalesce(F.col(flag), F.lit(False)) & good).alias(flag) for flag in (GAP, TWICE, QUIET)],
    )  # fmt: skip


def _dues(frame: DataFrame, due: Due, zones: Zones) -> dict[str, Column]:
    """`asked`, or what makes it, and `reason` where there is none."""
    if due.column:
        asked = _instants(frame, due.column)
        return {_ASKED: asked, _REASON: F.when(asked.isNull(), F.lit("due is null"))}
    day = F.lit(due.day) if due.day else day_of(frame, due.day_column, "[due] date_column")
    if due.time_s is not None:
        time = F.lit(due.time_s)
    else:
        time = time_of(frame, due.time_column, "[due] time_column")
    zone = zones.known(frame, due.zone, "[due] zone")
    reason = F.when(day.isNull(), F.lit("the date is null or not like 2030-01-31"))
    reason = reason.when(time.isNull(), F.lit("the time is null or not like 09:00"))
    reason = reason.when(zone.isNull(), F.lit("the time zone is null or unknown"))
    return {_LOCAL: local_us(day, time), _LOCAL_ZONE: F.coalesce(zone, F.lit("UTC")), _REASON: reason}


def _asked(rows: DataFrame, due: Due) -> DataFrame:
    """Add `asked` and the flags of local times."""
    if due.column:
        return rows.withColumns({GAP: F.lit(False), TWICE: F.lit(False)})
    rows = with_instants(rows, _LOCAL, _LOCAL_ZONE, "at")
    at = F.coalesce("at_second", "at") if due.ambiguous == "second" else F.col("at")
    asked = F.when(F.col(_REASON).isNull(), whole(at, _US))
    return rows.withColumns({_ASKED: asked, GAP: F.col("at_gap"), TWICE: F.col("at_second").isNotNull()})


def _instants(frame: DataFrame, name: str) -> Column:
    """Unix ms of a column of instants; timestamps are rounded up, never to an earlier ms."""
    found = column(frame, name, "[due] column")
    kind = type_of(frame, found)
    if isinstance(kind, LongType):
        return found
    if isinstance(kind, TimestampType):
        return whole(F.unix_micros(found) + F.lit(_US - 1), _US)
    hint = "it must be a timestamp, or Unix ms as bigint; make one in [columns], or give date, time and zone"
    if isinstance(kind, TimestampNTZType):
        hint = "it has no time zone; use date, time and zone, or cast it to timestamp in [columns]"
    raise InvalidRequest(f"[due] column: {name!r} is {kind.simpleString()}; {hint}")


def _fault(payload_bytes_max: int, last_ms: int, quiet: bool) -> Column:
    """Further faults of a row; null when there is none."""
    found = F.when(
        ~F.col(_ASKED).between(0, DUE_MS_MAX), F.lit(f"due is not within 0 … {DUE_MS_MAX} ms")
    )  # fmt: skip
    if last_ms < DUE_MS_MAX:
        found = found.when(F.col(_ASKED) > last_ms, F.lit("due is beyond the topic's horizon"))
    found = found.when(F.col(_PAYLOAD).isNull(), F.lit("payload is null (or a column of the template is)"))
    found = found.when(
        F.octet_length(_PAYLOAD) > payload_bytes_max,
        F.lit(f"the payload is longer than {payload_bytes_max} bytes"),
    )
    found = found.when(
        F.octet_length(_KEY) > KEY_BYTES_MAX, F.lit(f"the key is longer than {KEY_BYTES_MAX} bytes")
    )
    if quiet:
        found = found.when(F.col(ZONE).isNull(), F.lit("the time zone of the quiet hours is null or unknown"))
    return found


def _fated(rows: DataFrame, which: Column, fate: str) -> DataFrame:
    """Give rows a fate that have none yet."""
    return rows.withColumn(_FATE, F.coalesce(F.col(_FATE), F.when(which, F.lit(fate))))


def _suppressed(spark: SparkSession, rows: DataFrame, suppression: Suppression, kind: DataType) -> DataFrame:
    """Find the rows that are on the list.

    Args:
        spark: the session.
        rows: have what is looked for in `listed`, as text.
        suppression: the list.
        kind: the type of what is looked for.
    """
    name = suppression.list_column
    listed = with_columns(
        rows_of(spark, suppression.source, "suppression"), suppression.columns, "suppression.columns"
    )
    found = _comparable(listed, name, "[suppression] list_column")
    of_list = type_of(listed, column(listed, name, "[suppression] list_column"))
    if isinstance(kind, StringType) and not isinstance(of_list, StringType):
        written = as_written(spark, suppression.source, "suppression", name)
        listed = with_columns(written, suppression.columns, "suppression.columns")
        found = _comparable(listed, name, "[suppression] list_column")
    elif isinstance(kind, IntegralType) and isinstance(of_list, StringType):
        # The file's 007 is 7 among the rows, and 007 on a list where not all are numbers.
        found = found.try_cast("bigint").cast(StringType())
    names = listed.select(found.alias("name")).where(F.col("name").isNotNull()).distinct()
    joined = rows.join(names, F.col(_LISTED) == F.col("name"), "left")
    return _fated(joined, F.col("name").isNotNull(), SUPPRESSED)


def _comparable(frame: DataFrame, name: str, role: str) -> Column:
    """A column as text: what one file has as a number another has as text."""
    found = column(frame, name, role)
    kind = type_of(frame, found)
    if isinstance(kind, DoubleType | FloatType | DecimalType):
        raise InvalidRequest(
            f"{role}: {name!r} is {kind.simpleString()}, of which the same number has several texts; cast it "
            "in [columns] (of the list: [suppression] columns)"
        )
    return found.cast(StringType())


def _deduplicated(rows: DataFrame, deduplication: Deduplication) -> DataFrame:
    """Keeps one of several equal rows; their contents decide which, not their order."""
    due = F.col(_ASKED).desc() if deduplication.keep == "latest" else F.col(_ASKED).asc()
    more = [name for name in (ZONE, RANK, GROUP) if name in rows.columns]
    order = Window.partitionBy(_BY).orderBy(F.col(_FATE).isNotNull(), due, _DUE, _KEY, _PAYLOAD, *more)
    return _fated(rows.withColumn("place", F.row_number().over(order)), F.col("place") > 1, DUPLICATE)


def _outside_quiet_hours(rows: DataFrame, wanted: Column, quiet_hours: QuietHours | None) -> DataFrame:
    if quiet_hours is None:
        return rows.withColumn(_DUE, wanted).withColumn(QUIET, F.lit(False))
    # Within its limits an instant in µs is within those of a bigint; a bad row's might not be.
    due_us = F.when(F.col(_FATE).isNull(), wanted) * F.lit(_US)
    rows = rows.withColumns({"due_us": due_us, ZONE: F.coalesce(F.col(ZONE), F.lit("UTC"))})
    rows = with_quiet_end(rows, "due_us", ZONE, quiet_hours.from_s, quiet_hours.until_s, "ends")
    due = F.coalesce(whole(F.col("ends"), _US), wanted)
    return rows.withColumns({_DUE: due, QUIET: F.col("ends").isNotNull()})


def whole(number: Column, divisor: int) -> Column:
    """Integer division, downwards."""
    return F.call_function("div", number - F.pmod(number, F.lit(divisor)), F.lit(divisor))

"""The columns of a DataFrame that become messages, checked before any task runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as all of PySpark's users call it
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegralType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from dueq.errors import InvalidRequest
from dueq.limits import DUE_MS_MAX, RANK_MAX
from dueq.spark.hints import did_you_mean
from dueq_codecs.groups import GROUP_BYTES_MAX, GROUP_LEVELS_MAX
from dueq_codecs.meta import KEY_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DUE, PAYLOAD, KEY, REASON, ROW = "due", "payload", "key", "reason", "row"
RANK, GROUP = "rank", "group"
AS_JSON: Final = "json"
"""Means the row as JSON instead of a payload column, unless there is a column of this name."""
JSON: Final = {
    "ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}  # fmt: skip
"""Options for rows as JSON: nothing is lost, and nothing depends on the session's time zone."""


@dataclass(frozen=True)
class MessageColumns:
    """Which columns are due, payload and key; their types are right.

    Attributes:
        frame: the rows.
        due: a timestamp, or Unix ms as long.
        payload: binary or string.
        key: string; None when messages have none.
        rank: bigint; None when messages have none.
        group: string; None when messages have none.
    """

    frame: DataFrame
    due: Column
    payload: Column
    key: Column | None
    rank: Column | None = None
    group: Column | None = None

    def checked(self, payload_bytes_max: int, last_due_ms: int | None, keep_row: bool) -> DataFrame:
        """Select what the tasks need, and say of each row that cannot be a message why.

        Args:
            payload_bytes_max: the topic's longest payload.
            last_due_ms: where the topic's horizon lies, Unix ms; None: it has none.
            keep_row: whether `row` is wanted.

        Returns:
            `due` (long: Unix ms, rounded up: never earlier than the timestamp says), `payload` (binary), with
            a key `key` (binary, null where a row has none), with ranks `rank` (bigint), with groups `group` (string,
            null where a row has none), `reason` (null where all is well), and, if it is to be kept, `row`: the whole
            row as JSON where there is a reason, else null.
        """
        columns = [self.due.alias(DUE), self.payload.alias(PAYLOAD)]
        if self.key is not None:
            columns.append(self.key.cast(BinaryType()).alias(KEY))
        for name, column in ((RANK, self.rank), (GROUP, self.group)):
            if column is not None:
                columns.append(column.alias(name))
        if keep_row:
            names = [F.col(f"`{name.replace('`', '``')}`") for name in self.frame.columns]
            columns.append(F.struct(*names).alias(ROW))
        chosen = self.frame.select(*columns)
        whole = chosen.withColumns({
            DUE: _whole_ms(chosen.schema[DUE].dataType),
            PAYLOAD: F.col(PAYLOAD).cast(BinaryType()),
        })  # fmt: skip
        judged = whole.withColumn(REASON, _reason(payload_bytes_max, last_due_ms, set(chosen.columns)))
        if not keep_row:
            return judged
        # A CASE computes only the branch it takes: good rows are never made JSON of.
        return judged.withColumn(ROW, F.when(F.col(REASON).isNotNull(), F.to_json(ROW, JSON)))


def message_columns(
    frame: DataFrame,
    due: str | Column,
    payload: str | Column | None,
    key: str | Column | None,
    due_role: str = "due",
    rank: str | Column | None = None,
    group: str | Column | None = None,
) -> MessageColumns:
    """Find due, payload, key, rank and group in a frame.

    Args:
        frame: the rows.
        due: a timestamp, or Unix ms as long.
        payload: binary, or a string (sent as UTF-8); None or "json": all columns but those that `due` and `key`
            name, as JSON.
        key: what names a message; any type with a text.
        due_role: what the caller's user calls `due`.
        rank: a whole number, null: 0.
        group: a string, null or empty: none.

    Raises:
        InvalidRequest: a column is missing or of another type; the text names it.
    """
    for role, what in ((due_role, due), ("payload", payload), ("key", key), (RANK, rank), (GROUP, group)):
        if not isinstance(what, str | Column) and (what is not None or role == due_role):
            raise InvalidRequest(
                f"{role} is a column or the name of one, not {what!r:.80} (F.lit makes a column of a value)"
            )
    due_type = _type_of(frame, due, due_role)
    if isinstance(due_type, TimestampNTZType):
        raise InvalidRequest(
            f"the {due_role} column {_name(due)} is a timestamp without time zone; "
            "cast it to timestamp, or give Unix ms"
        )
    if not isinstance(due_type, TimestampType | LongType):
        raise InvalidRequest(
            f"the {due_role} column {_name(due)} is {due_type.simpleString()}; "
            "it must be a timestamp, or Unix ms as bigint"
        )
    if key is not None:
        _type_of(frame, key, "key")
    if payload is None or (isinstance(payload, str) and payload == AS_JSON and AS_JSON not in frame.columns):
        payload = _as_json(frame, {what for what in (due, key, rank, group) if isinstance(what, str)})
    payload_type = _type_of(frame, payload, "payload")
    if not isinstance(payload_type, BinaryType | StringType):
        raise InvalidRequest(
            f"the payload column {_name(payload)} is {payload_type.simpleString()}; "
            "it must be binary or string (payload=None sends the row as JSON)"
        )
    named = None if key is None else _column(key).cast(StringType())
    return MessageColumns(
        frame,
        _column(due),
        _column(payload),
        named,
        None if rank is None else rank_column(frame, rank),
        None if group is None else group_column(frame, group),
    )


def rank_column(frame: DataFrame, rank: str | Column) -> Column:
    """Return the rank of each row, 0 where it is null.

    Raises:
        InvalidRequest: the column is missing or of another type.
    """
    kind = _type_of(frame, rank, RANK)
    if not isinstance(kind, IntegralType):
        raise InvalidRequest(
            f"the rank column {_name(rank)} is {kind.simpleString()}; it must be a whole number"
        )
    return F.coalesce(_column(rank).cast(LongType()), F.lit(0).cast(LongType()))


def group_column(frame: DataFrame, group: str | Column) -> Column:
    """Return the group of each row.

    Raises:
        InvalidRequest: the column is missing or of another type.
    """
    kind = _type_of(frame, group, GROUP)
    if not isinstance(kind, StringType):
        raise InvalidRequest(f"the group column {_name(group)} is {kind.simpleString()}; it must be a string")
    return _column(group).cast(StringType())  # of a collation two names may be equal, and are not one group


def _as_json(frame: DataFrame, without: set[str]) -> Column:
    # Spark finds a column by its name whatever the case, unless it is told otherwise.
    exact = str(frame.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true"
    left_out = {_unquoted(name) if exact else _unquoted(name).lower() for name in without}
    names = [name for name in frame.columns if (name if exact else name.lower()) not in left_out]
    if not names:
        raise InvalidRequest("there is nothing to send as JSON: the rows have no columns but due and key")
    return F.to_json(F.struct(*[F.col(f"`{name.replace('`', '``')}`") for name in names]), JSON)


def _unquoted(name: str) -> str:
    quoted = len(name) > 1 and name.startswith("`") and name.endswith("`")
    return name[1:-1].replace("``", "`") if quoted else name


def _whole_ms(kind: DataType) -> Column:
    if not isinstance(kind, TimestampType):
        return F.col(DUE)
    # `div` cuts towards zero, `%` has the sign of the dividend: together the ceiling, for instants before 1970 too.
    return F.expr(f"unix_micros({DUE}) div 1000 + if(unix_micros({DUE}) % 1000 > 0, 1, 0)")


def _reason(payload_bytes_max: int, last_due_ms: int | None, names: set[str]) -> Column:
    """The first thing that is wrong with a row; null when nothing is."""
    due, payload = F.col(DUE), F.col(PAYLOAD)
    shown = due.cast(StringType())
    found = F.when(due.isNull(), F.lit("due is null"))
    found = found.when(
        (due < 0) | (due > DUE_MS_MAX),
        F.concat(F.lit("due "), shown, F.lit(f" ms is not within 0 … {DUE_MS_MAX}")),
    )
    if last_due_ms is not None:
        found = found.when(
            due > last_due_ms,
            F.concat(F.lit("due "), shown, F.lit(f" ms is beyond the topic's horizon ({last_due_ms} ms)")),
        )
    found = found.when(payload.isNull(), F.lit("payload is null"))
    found = found.when(
        F.octet_length(payload) > payload_bytes_max,
        F.concat(
            F.lit("the payload has "), F.octet_length(payload).cast(StringType()),
            F.lit(f" bytes; the topic allows {payload_bytes_max}"),
        ),
    )  # fmt: skip
    if KEY in names:
        key = F.col(KEY)
        found = found.when(~F.is_valid_utf8(key.cast(StringType())), F.lit("the key is no UTF-8"))
        found = found.when(
            F.octet_length(key) > KEY_BYTES_MAX,
            F.concat(
                F.lit("the key has "), F.octet_length(key).cast(StringType()),
                F.lit(f" bytes; it may have {KEY_BYTES_MAX}"),
            ),
        )  # fmt: skip
    return reason_of_placing(found, names)


def reason_of_placing(found: Column, names: Collection[str]) -> Column:
    """Add to a CASE what can be wrong with rank and group.

    Args:
        found: the CASE.
        names: of columns; `rank` and `group` are looked at if they are among them.
    """
    if RANK in names:
        rank = F.col(RANK)
        found = found.when(
            (rank < 0) | (rank > RANK_MAX),
            F.concat(F.lit("the rank "), rank.cast(StringType()), F.lit(f" is not within 0 … {RANK_MAX}")),
        )
    if GROUP in names:
        group = F.col(GROUP)
        found = found.when(~F.is_valid_utf8(group), F.lit("the group is no UTF-8"))
        found = found.when(
            F.octet_length(group) > GROUP_BYTES_MAX,
            F.lit(f"the group has more than {GROUP_BYTES_MAX} bytes of UTF-8"),
        )
        found = found.when(
            (group != "") & group.rlike(r"^\.|\.\.|\.$"), F.lit("a level of the group has no name")
        )
        found = found.when(
            F.size(F.split(group, r"\.")) > GROUP_LEVELS_MAX,
            F.lit(f"the group has more than {GROUP_LEVELS_MAX} levels"),
        )
    return found


def _type_of(frame: DataFrame, what: str | Column, role: str) -> DataType:
    if isinstance(what, str) and what.isidentifier() and what.lower() not in map(str.lower, frame.columns):
        raise _missing(frame, what, role)
    try:
        kind: DataType = frame.select(_column(what).alias(role)).schema[role].dataType
    except AnalysisException as error:
        if not isinstance(what, str) or frame.columns.count(what) > 1:
            raise InvalidRequest(
                f"the {role} column {_name(what)} does not fit: {_first_line(error)}"
            ) from error
        raise _missing(frame, what, role) from error
    return kind


def _missing(frame: DataFrame, what: str, role: str) -> InvalidRequest:
    if what in frame.columns:  # a dot in a name means a field to Spark
        return InvalidRequest(f"the column {what!r} must be quoted, as `{what}`, to take {role} from it")
    expression = " (an expression: F.expr)" if not what.isidentifier() else ""
    return InvalidRequest(
        f"there is no column {what!r}{expression} to take {role} from{did_you_mean(what, frame.columns)}"
    )


def _first_line(error: Any) -> str:
    return str(error).strip().partition("\n")[0]


def _column(what: str | Column) -> Column:
    return F.col(what) if isinstance(what, str) else what


def _name(what: str | Column) -> str:
    return repr(what) if isinstance(what, str) else str(what)

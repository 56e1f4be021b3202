"""The columns of a DataFrame that become messages, checked before any task runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as all of PySpark's users call it
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from dueq.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DUE, PAYLOAD, KEY = "due", "payload", "key"


def message_columns(
    frame: DataFrame, due: str | Column, payload: str | Column, key: str | Column | None
) -> tuple[DataFrame, bool]:
    """Select what the tasks need.

    Args:
        frame: the rows.
        due: a timestamp, or Unix ms as long.
        payload: binary, or a string (sent as UTF-8).
        key: what names a row in the report; any type with a text.

    Returns:
        A frame of `due` (long), `payload` (binary) and, with a key, `key` (string); and whether `due` is in
        microseconds rather than milliseconds.

    Raises:
        InvalidRequest: a column is of another type; the text names it.
    """
    columns = [_column(due).alias(DUE), _column(payload).alias(PAYLOAD)]
    if key is not None:
        columns.append(_column(key).cast(StringType()).alias(KEY))
    chosen = frame.select(*columns)
    due_type, payload_type = chosen.schema[DUE].dataType, chosen.schema[PAYLOAD].dataType
    _check_due(due, due_type)
    if not isinstance(payload_type, BinaryType | StringType):
        raise InvalidRequest(
            f"the payload column {_name(payload)} is {payload_type.simpleString()}; "
            "it must be binary or string"
        )
    in_microseconds = isinstance(due_type, TimestampType)
    instant = F.unix_micros(F.col(DUE)) if in_microseconds else F.col(DUE)
    ready = [instant.alias(DUE), F.col(PAYLOAD).cast(BinaryType()).alias(PAYLOAD)]
    return chosen.select(*ready, *([KEY] if key is not None else [])), in_microseconds


def _check_due(due: str | Column, kind: DataType) -> None:
    if isinstance(kind, TimestampNTZType):
        raise InvalidRequest(
            f"the due column {_name(due)} is a timestamp without time zone; "
            "cast it to timestamp, or give Unix ms"
        )
    if not isinstance(kind, TimestampType | LongType):
        raise InvalidRequest(
            f"the due column {_name(due)} is {kind.simpleString()}; "
            "it must be a timestamp, or Unix ms as bigint"
        )


def _column(what: str | Column) -> Column:
    return F.col(what) if isinstance(what, str) else what


def _name(what: str | Column) -> str:
    return repr(what) if isinstance(what, str) else str(what)

"""Rows from files or tables, and their columns found or missed before anything runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F  # noqa: N812 - as all of PySpark's users call it

from dueq.campaign.spec import Source
from dueq.errors import InvalidRequest
from dueq.spark.hints import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_CSV: Final = {"header": "true", "inferSchema": "true"}
"""Defaults that suit most files; the specification's options overrule them."""
_STRICT: Final = {"mode": "FAILFAST", "columnPruning": "false"}
"""Defaults of a suppression list: Spark would take a line that it cannot read for nulls, and whoever stands there would
get what they do not want."""


def rows_of(spark: SparkSession, source: Source, role: str) -> DataFrame:
    """Return a source's rows; of a table or file only what describes it is read (of CSV and JSON also their types).

    Args:
        spark: the session.
        source: where they come from.
        role: "source" or "suppression", for error texts.

    Raises:
        InvalidRequest: there is no such path or table, or schema or condition are wrong.
    """
    try:
        if source.table:
            frame = spark.table(source.table)
        else:
            defaults = {
                **(_CSV if source.format == "csv" else {}),
                **(_STRICT if role == "suppression" else {}),
            }
            reader = spark.read.format(source.format).options(**defaults).options(**source.options)
            if source.schema:
                reader = reader.schema(source.schema)
            frame = reader.load(list(source.paths))
    except (AnalysisException, ParseException, Py4JJavaError) as error:
        what = source.table or ", ".join(source.paths)
        raise InvalidRequest(f"[{role}] {what} cannot be read: {first_line(error)}") from error
    return where(frame, source.where, role) if source.where else frame


def as_written(spark: SparkSession, source: Source, role: str, name: str) -> DataFrame:
    """Return a CSV's rows with a column as the text of the file: +4917 and 007 are others once they are numbers.

    Args:
        spark: the session.
        source: where they come from.
        role: as for `rows_of`.
        name: of the column. If its type was not inferred, or there is none, nothing changes.

    Raises:
        InvalidRequest: as `rows_of`.
    """
    frame = rows_of(spark, source, role)
    if source.format != "csv" or source.schema:
        return frame
    types = {
        field.name: "string" if field.name.lower() == name.lower() else field.dataType.simpleString()
        for field in frame.schema
    }
    ddl = ", ".join(f"`{known.replace('`', '``')}` {kind}" for known, kind in types.items())
    return rows_of(spark, replace(source, schema=ddl), role)


def where(frame: DataFrame, condition: str, role: str) -> DataFrame:
    """Keep the rows for which a condition in SQL holds.

    Raises:
        InvalidRequest: it is no condition on these columns.
    """
    try:
        return frame.where(condition)
    except (AnalysisException, ParseException) as error:
        raise InvalidRequest(f"[{role}] where = {condition!r}: {first_line(error)}") from error


def with_columns(frame: DataFrame, columns: dict[str, str], table: str) -> DataFrame:
    """Add columns that are expressions of the others, one after the other.

    Args:
        frame: the rows.
        columns: expressions in SQL by the names of new columns.
        table: of the specification, for error texts.

    Raises:
        InvalidRequest: an expression is wrong; the text names its column.
    """
    for name, expression in columns.items():
        try:
            frame = frame.withColumn(name, F.expr(expression))
            frame.schema  # noqa: B018 - a Spark session of the Connect kind resolves columns only now
        except (AnalysisException, ParseException) as error:
            raise InvalidRequest(f"[{table}] {name} = {expression!r}: {first_line(error)}") from error
    return frame


def column(frame: DataFrame, name: str, role: str) -> Column:
    """Return a column, or a field of one ("address.city").

    Args:
        frame: the rows.
        name: as in the specification; case does not matter, as in Spark.
        role: its purpose, as in `[due] column`, for the error text.

    Raises:
        InvalidRequest: there is none.
    """
    by_lower = {known.lower(): known for known in frame.columns}
    if name.lower() in by_lower:
        return F.col(f"`{by_lower[name.lower()].replace('`', '``')}`")
    if "." in name and name.partition(".")[0].lower() in by_lower:
        try:
            frame.select(name).schema  # noqa: B018
        except (AnalysisException, ParseException) as error:
            raise InvalidRequest(f"{role}: there is no {name!r}: {first_line(error)}") from error
        return F.col(name)
    raise InvalidRequest(f"{role}: there is no column {name!r}{did_you_mean(name, frame.columns)}")


def type_of(frame: DataFrame, found: Column) -> DataType:
    """Return a column's type."""
    return frame.select(found.alias("it")).schema["it"].dataType


def first_line(error: Exception) -> str:
    """Return what Spark or its Java says, without query plans, places in a stack, and what only passes it on."""
    if isinstance(error, Py4JJavaError):
        thrown = error.java_exception
        while thrown.getCause() is not None:
            thrown = thrown.getCause()
        return str(thrown.getMessage() or thrown.toString()).strip().partition("\n")[0]
    return str(error).strip().partition("\n")[0]

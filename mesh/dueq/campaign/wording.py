"""A row's payload, from a column, from several as JSON, or from a template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from dueq.campaign.sources import column, type_of
from dueq.campaign.spec import Payload
from dueq.campaign.template import pieces_of
from dueq.errors import InvalidRequest
from dueq.spark.columns import JSON

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ALL: Final = ("all",)


def payload_of(frame: DataFrame, payload: Payload) -> Column:
    """Return the payload of each row: binary or string; null where a column of the template is, empty with a body.

    Raises:
        InvalidRequest: a column is missing or of another type.
    """
    if payload.body:
        return F.lit("")
    if payload.template:
        return _filled(frame, payload.template)
    if payload.columns:
        names = tuple(frame.columns) if payload.columns == _ALL else payload.columns
        found = [column(frame, name, "[payload] columns").alias(name) for name in names]
        return F.to_json(F.struct(*found), JSON)
    found_one = column(frame, payload.column, "[payload] column")
    kind = type_of(frame, found_one)
    if not isinstance(kind, BinaryType | StringType):
        raise InvalidRequest(
            f"[payload] column: {payload.column!r} is {kind.simpleString()}; it must be binary or string "
            '(columns = ["…"] sends JSON, template = "{…}" text)'
        )
    return found_one


def _filled(frame: DataFrame, template: str) -> Column:
    parts = []
    for piece in pieces_of(template):
        if not piece.column:
            parts.append(F.lit(piece.text))
            continue
        found = column(frame, piece.column, "[payload] template")
        kind = type_of(frame, found)
        if isinstance(kind, BinaryType | ArrayType | MapType | StructType):
            raise InvalidRequest(
                f"[payload] template: {piece.column!r} is {kind.simpleString()}, which has no text of its own; "
                'make one, as in [columns] x = "to_json(…)"'
            )
        parts.append(found.cast("string"))
    return F.concat(*parts)

"""The common base of all models of the native API, the fields that several of them have, and names in paths."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.convertors import Convertor, register_url_convertor

from dueq import limits
from dueq.gateway.asked import Known
from dueq.gateway.problems import MEDIA_TYPE

PROBLEM: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "description": "What went wrong.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
"""The answers of every route besides its own."""


class Asked(Known):
    """A body that a client sends: a field that the model does not have is refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)


class Answer(BaseModel):
    """A body that the gateway sends."""

    model_config = ConfigDict(populate_by_name=True)


Instant = Annotated[
    int | str,
    Field(
        description="RFC 3339 with a zone, Unix milliseconds, or a duration from now (`90s`, `1h30m`).",
        examples=["2030-01-31T09:00:00Z", 1896080400000, "90s"],
    ),
]
Duration = Annotated[
    float | str,
    Field(description="A duration such as `250ms`, `90s` or `1h30m`, or seconds.", examples=["90s", 0.25]),
]
Said = Annotated[str, Field(description="RFC 3339, in UTC.", examples=["2030-01-31T09:00:00.000Z"])]
Topic = Annotated[str, Path(description="The topic's name.", examples=["mail"])]
Count = Annotated[int, Query(ge=1, le=limits.GATEWAY_ITEMS_MAX, description="How many at most.")]
Cursor = Annotated[
    str, Query(description="Where to go on: the `cursor` of the page before.", max_length=1024)
]


class _Text(Convertor[str]):
    """Any text, slashes and line breaks included: with `path`, `a%0A` would be the name `a`."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("text", _Text())
"""`{key:text}` in the path of a route."""

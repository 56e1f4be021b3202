"""Values as proto3's JSON has them: durations, instants, bytes, enums.

Enums are read as names and as numbers, and written as the request asks (`$alt=json;enum-encoding=int`).
"""

from __future__ import annotations

import re
from base64 import b64decode, urlsafe_b64decode
from enum import IntEnum
from typing import Any, Final, TypeVar

from fastapi import Request
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from dueq import limits
from dueq.gateway import bodies, instants
from dueq.gateway.asked import Known
from dueq.gateway.faces.cloud_tasks.status import Code, RpcError

E = TypeVar("E", bound=IntEnum)

_DURATION: Final = re.compile(r"(-?)(\d{1,12})(?:\.(\d{1,9}))?s\Z", re.ASCII)


class HttpMethod(IntEnum):
    """How a task is sent."""

    HTTP_METHOD_UNSPECIFIED = 0
    POST = 1
    GET = 2
    HEAD = 3
    PUT = 4
    DELETE = 5
    PATCH = 6
    OPTIONS = 7


class State(IntEnum):
    """Of a queue."""

    STATE_UNSPECIFIED = 0
    RUNNING = 1
    PAUSED = 2
    DISABLED = 3


class View(IntEnum):
    """How much of a task is shown."""

    VIEW_UNSPECIFIED = 0
    BASIC = 1
    FULL = 2


class Part(Known):
    """A message of the protocol; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)


async def body_of(request: Request) -> Any:
    """Read a body.

    Raises:
        RpcError: INVALID_ARGUMENT: it is no JSON object.
        Refusal: it is too long, too deep, or comes too slowly.
    """
    async with bodies.whole(request, limits.CLOUD_TASKS_BODY_BYTES_MAX) as body:
        found = bodies.parsed(body) if body else {}
    if not isinstance(found, dict):
        raise RpcError(Code.INVALID_ARGUMENT, f"the body is a JSON object, not {type(found).__name__}")
    return found


def page_of(request: Request, most: int) -> tuple[int, str]:
    """Return how many rows a page has, and where it begins; "": at the first.

    Raises:
        RpcError: INVALID_ARGUMENT: the size is no number of 0 or more.
    """
    given = request.query_params
    size = given.get("pageSize") or given.get("page_size") or "0"
    if not (size.isascii() and size.isdigit() and len(size) < 10):
        raise RpcError(Code.INVALID_ARGUMENT, f"pageSize is a number of 0 or more, not {size!r:.80}")
    return min(int(size) or most, most), given.get("pageToken") or given.get("page_token") or ""


def duration_ms(value: str, where: str, low_ms: int, high_ms: int) -> int:
    """Read a duration such as "3.5s", in ms, rounded up.

    Raises:
        RpcError: INVALID_ARGUMENT: it is none, or outside its limits.
    """
    found = _DURATION.match(value)
    if found is None:
        raise RpcError(Code.INVALID_ARGUMENT, f"{where} is a duration such as 3.5s, not {value!r:.80}")
    nanos = int(found[2]) * 10**9 + int((found[3] or "0").ljust(9, "0"))
    ms = -(-nanos // 10**6) * (-1 if found[1] else 1)
    if not low_ms <= ms <= high_ms:
        raise RpcError(
            Code.INVALID_ARGUMENT, f"{where} is {low_ms / 1000:g}s to {high_ms / 1000:g}s, not {value!r:.80}"
        )
    return ms


def duration(ms: int) -> str:
    """Return a duration as the protocol says it."""
    whole, rest = divmod(ms, 1000)
    return f"{whole}.{rest:03}s" if rest else f"{whole}s"


def instant_ms(value: str, where: str) -> int:
    """Read an instant (RFC 3339), as Unix ms, rounded up: nothing is ever early.

    Raises:
        RpcError: INVALID_ARGUMENT: it is none.
    """
    if not re.match(r"\d{4}-", value):
        raise RpcError(
            Code.INVALID_ARGUMENT, f"{where} is an instant such as 2030-01-31T09:00:00Z, not {value!r:.80}"
        )
    return instants.instant_ms(value, 0, where)


def data(value: str, where: str) -> bytes:
    """Read bytes: base64 in either alphabet, with or without padding.

    Raises:
        RpcError: INVALID_ARGUMENT: they are none.
    """
    padded = value + "=" * (-len(value) % 4)
    try:
        if "-" in value or "_" in value:
            if not value.isascii() or not re.fullmatch(r"[A-Za-z0-9_-]*={0,2}", padded):
                raise ValueError("it has other characters")
            return urlsafe_b64decode(padded)
        return b64decode(padded, validate=True)
    except ValueError as error:
        raise RpcError(Code.INVALID_ARGUMENT, f"{where} is not base64: {error}") from None


def enum(kind: type[E], value: object, where: str) -> E:
    """Read an enum.

    Raises:
        RpcError: INVALID_ARGUMENT: it has no such value.
    """
    try:
        if isinstance(value, str) and not value.isdigit():
            return kind[value]
        if isinstance(value, int | str) and not isinstance(value, bool):
            return kind(int(value))
    except (KeyError, ValueError):
        pass
    names = ", ".join(each.name for each in kind)
    raise RpcError(Code.INVALID_ARGUMENT, f"{where} is one of {names}, not {value!r:.80}")


def camel(name: str) -> str:
    """Return a field's name as JSON has it."""
    return to_camel(name)


class Shape:
    """How an answer writes enums.

    Args:
        request: what asks for it.
    """

    def __init__(self, request: Request) -> None:
        asked = [value for name in ("$alt", "alt") for value in request.query_params.getlist(name)]
        self._numbers = any("enum-encoding=int" in value for value in asked)

    def enum(self, value: IntEnum) -> int | str:
        """Return an enum as it is written."""
        return int(value) if self._numbers else value.name

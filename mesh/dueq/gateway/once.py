"""Idempotency keys: the digest that a repeated request shares with the first one, and the keys of its messages.

The mesh keeps them (`core/state/keyed.py`), in the partition of the message. A message without a unique key and a group
goes where its key is at home, so one look finds a repetition. Others, and arrays, lie elsewhere: there the request's
key is claimed first, and each message has a key of its own that follows from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

from fastapi import Request

from dueq import limits
from dueq.client.calls import Once
from dueq.gateway.bodies import content_type
from dueq.gateway.problems import Unfit
from dueq.gateway.service import NewMessage

HEADER: Final = "idempotency-key"
_OWN: Final = "dueq-"
_ROW: Final = b"\xff"
"""Comes before the number of a row; no key has it, being UTF-8."""


def checked(key: str, where: str) -> bytes:
    """Return the bytes of a key.

    Raises:
        Unfit: it is empty, too long, or no text.
    """
    most = limits.IDEMPOTENCY_KEY_BYTES_MAX
    try:
        name = key.encode()
    except UnicodeEncodeError as error:
        raise Unfit(f"{where} is not Unicode text: {error.reason}", None, None, where) from None
    if not 1 <= len(name) <= most:
        raise Unfit(f"{where} has 1 to {most} bytes, not {len(name)}", key, most, where)
    return name


def of_request(request: Request, name: bytes, body: bytes) -> Once:
    """Return the key of a whole request: it is the same one if all that matters of it is the same, byte by byte."""
    headers = sorted(pair for pair in request.headers.items() if pair[0].startswith(_OWN))
    parts = [content_type(request), *_query(request)]
    said = "\0\0".join([*parts, *map("\0".join, headers)]).encode()
    return Once(name, _digest(len(said).to_bytes(8, "big") + said + body))


def of_line(request: Request, name: bytes, text: bytes) -> Once:
    """Return the key of a line of NDJSON: what its request says of all lines is a part of it."""
    said = "\0\0".join(_query(request, but="answers")).encode()
    return Once(name, _digest(len(said).to_bytes(8, "big") + said + text.strip()))


def _query(request: Request, but: str = "") -> list[str]:
    return ["\0".join(pair) for pair in sorted(request.query_params.multi_items()) if pair[0] != but]


def named(messages: Sequence[NewMessage], once: Once) -> list[NewMessage]:
    """Give the messages of one request its key."""
    if len(messages) == 1 and messages[0].key is None and messages[0].group is None:
        return [replace(messages[0], once=once)]
    return [
        replace(message, claim=once, once=Once(once.name + _ROW + b"%d" % row, once.digest))
        for row, message in enumerate(messages)
    ]


def _digest(data: bytes) -> int:
    return int.from_bytes(sha256(data).digest()[:8], "big")

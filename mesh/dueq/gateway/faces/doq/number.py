"""Numbers of messages: 64 bits without the highest, written in decimal."""

from __future__ import annotations

import re
import secrets
from typing import Final

from dueq.gateway.faces.doq.failures import DoqError, Kind

NUMBER_MAX: Final = (1 << 63) - 1
_EPOCH_MS: Final = 1_288_834_974_657
"""The zero of Snowflake numbers: November 2010."""
_RANDOM_BITS: Final = 22
_DECIMAL: Final = re.compile(r"[0-9]{1,30}\Z", re.ASCII)


def new(now_ms: int, count: int = 1) -> list[int]:
    """Return new numbers, the later the larger: 41 bits of time and 22 of chance.

    Two gateways may draw the same one; the one that uses it second finds out, and draws again.

    Args:
        now_ms: mesh time, Unix ms.
        count: how many, at most 1,000.
    """
    high = max(now_ms - _EPOCH_MS, 0) << _RANDOM_BITS
    found: set[int] = set()
    while len(found) < count:
        found.add(high | secrets.randbits(_RANDOM_BITS))
    return sorted(found)


def chosen(text: str) -> int | None:
    """Return the number that a producer has chosen; None: it wants one to be made.

    Raises:
        DoqError: it is too large.
    """
    if not _DECIMAL.match(text) or not int(text):
        return None
    return _checked(int(text), "body.id", text)


def of_path(text: str) -> int:
    """Return the number in a path.

    Raises:
        DoqError: it is none.
    """
    if not _DECIMAL.match(text):
        raise DoqError(Kind.INVALID, "validation failed", "invalid integer", "path.id", text)
    return _checked(int(text), "path.id", text)


def is_one(key: str) -> bool:
    """Return whether a key is a number as clients name it: others could receive such a message, and not settle it."""
    return _DECIMAL.match(key) is not None and key == str(int(key)) and int(key) <= NUMBER_MAX


def _checked(value: int, where: str, text: str) -> int:
    if value > NUMBER_MAX:
        raise DoqError(
            Kind.INVALID, "validation failed", f"an id is at most {NUMBER_MAX}, not {text}", where, text
        )
    return value

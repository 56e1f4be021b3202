"""Instants and lengths of time as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

UNIT_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""The units of lengths of time, the longest first."""


def instant_text(unix_ms: int) -> str:
    """Return Unix ms as ISO 8601 UTC with milliseconds (or as the number, beyond year 9999)."""
    try:
        instant = datetime.fromtimestamp(unix_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{unix_ms} ms"
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{unix_ms % 1000:03d}Z"


def duration_text(length: timedelta) -> str:
    """Return a length of time as options take it: 14d, 1h30m, 250ms."""
    left, text = abs(length) // timedelta(milliseconds=1), "-" if length < timedelta(0) else ""
    if not left:
        return "0s"
    for unit, unit_ms in UNIT_MS.items():
        whole, left = divmod(left, unit_ms)
        text += f"{whole}{unit}" if whole else ""
    return text

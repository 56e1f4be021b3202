"""What users say of their messages in headers: it follows from the payload, so whoever gets one knows what is right."""

from __future__ import annotations

from zlib import crc32


def headings_of(payload: bytes) -> dict[str, str]:
    """Return the headers of a payload: none, some, or many."""
    number = crc32(payload)
    return {f"header-{row}": f"{number >> row:x}ü" for row in range((0, 1, 2, 40)[number % 4])}

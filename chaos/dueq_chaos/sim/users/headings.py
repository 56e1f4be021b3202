"""Headers of users' messages: they follow from the payload, so every receiver of a message knows the right ones."""

from __future__ import annotations

from zlib import crc32


def headings_of(payload: bytes) -> dict[str, str]:
    """Return the headers of a payload: none, some, or many."""
    number = crc32(payload)
    return {f"header-{row}": f"{number >> row:x}ü" for row in range((0, 1, 2, 40)[number % 4])}

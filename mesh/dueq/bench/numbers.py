"""Numbers as people read them."""

from __future__ import annotations


def number(value: float) -> str:
    """A number with the digits that mean something."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    digits = 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")

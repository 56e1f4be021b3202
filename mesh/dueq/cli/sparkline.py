"""A row of counts as a row of little bars."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(counts: Sequence[int], width: int) -> str:
    """Draw counts.

    Args:
        counts: numbers of one series, at least 0.
        width: characters at most; neighbours are added up to fit.

    Returns:
        One character a (group of) number(s), a dot for nothing; the highest bar is the largest number.
    """
    if not counts:
        return ""
    step = -(-len(counts) // width)
    groups = [sum(counts[i : i + step]) for i in range(0, len(counts), step)]
    top = max(groups)
    return "".join(_BARS[(count * len(_BARS) - 1) // top] if count else "·" for count in groups)

"""The document of a forecast: the counts of each partition, or their sums where all of them would not fit a frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dueq.limits import FRAME_BYTES_MAX

if TYPE_CHECKING:
    from dueq.core.partition.partition import Partition

PAIRS_MAX: Final = FRAME_BYTES_MAX // 40
"""Seconds with their counts in one document; as JSON each has fewer characters than that."""


def document(led: Sequence[Partition], from_ms: int, seconds: int) -> dict[str, Any]:
    """Return how many messages are due in each second, of the partitions that are led here."""
    counts = [partition.contents.forecast(from_ms, seconds) for partition in led]
    fits = sum(map(len, counts)) <= PAIRS_MAX
    found: dict[str, Any] = {
        "partitions": [
            {
                "uid": partition.uid,
                "epoch": partition.epoch,
                "sequence": partition.applied,
                "counts": each if fits else [],
                "known_until": partition.contents.known_until_ms,
            }
            for partition, each in zip(led, counts, strict=True)
        ]
    }
    if not fits:
        sums: Counter[int] = Counter()
        for each in counts:
            sums.update(dict(each))
        found["counts"] = sorted(sums.items())
    return found

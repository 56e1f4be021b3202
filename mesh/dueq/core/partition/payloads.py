"""Payloads that are still in memory with the records that brought them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import Entries
from dueq_codecs.records import LogEntry


def cached_payloads(
    entry_of: Callable[[int], LogEntry | None], entries: Entries
) -> list[bytes | memoryview | None]:
    """Return the inline payload of each entry, None where its record has left memory.

    Args:
        entry_of: gives a record by its sequence.
        entries: of the timeline.
    """
    starts: dict[int, tuple[memoryview, npt.NDArray[np.int64]] | None] = {}
    payloads: list[bytes | memoryview | None] = []
    rows = zip(entries["sequence"].tolist(), entries["row"].tolist(), entries["size"].tolist(), strict=True)
    for sequence, row, size in rows:
        if sequence not in starts:
            starts[sequence] = _body_of(entry_of(sequence))
        found = starts[sequence]
        if found is None:
            payloads.append(None)
            continue
        body, ends = found
        end = int(ends[row])
        payloads.append(body[end - size : end])
    return payloads


def _body_of(entry: LogEntry | None) -> tuple[memoryview, npt.NDArray[np.int64]] | None:
    """Return a record's body, and where each row's payload ends in it."""
    if entry is None:
        return None
    record = entry.record
    inline = record.size if not len(record.upload) else np.where(record.upload == 0, record.size, 0)
    return memoryview(entry.body), np.cumsum(inline, dtype=np.int64)

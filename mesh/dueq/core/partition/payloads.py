"""Payloads that are still in memory with the records that brought them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import Entries, is_full
from dueq_codecs.records import LogEntry
from dueq_codecs.rules import inline_bytes


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
    rows = zip(entries["sequence"].tolist(), entries["row"].tolist(), strict=True)
    for sequence, row in rows:
        if sequence not in starts:
            starts[sequence] = _body_of(entry_of(sequence))
        found = starts[sequence]
        if found is None:
            payloads.append(None)
            continue
        body, ends = found
        end = int(ends[row])
        begin = int(ends[row - 1]) if row else 0
        payloads.append(body[begin:end])
    return (
        _with_shared(entry_of, entries, payloads) if is_full(entries) and entries["body"].any() else payloads
    )


def _with_shared(
    entry_of: Callable[[int], LogEntry | None], entries: Entries, payloads: list[bytes | memoryview | None]
) -> list[bytes | memoryview | None]:
    """Put shared bodies behind payloads that go on with them, as far as these are in memory, too."""
    for at, number in enumerate(entries["body"].tolist()):
        own = payloads[at]
        if number and own is not None:
            brought = entry_of(number)
            payloads[at] = b"".join((own, brought.body)) if brought is not None else None
    return payloads


def _body_of(entry: LogEntry | None) -> tuple[memoryview, npt.NDArray[np.int64]] | None:
    """Return a record's body, and where each row's payload ends in it."""
    if entry is None:
        return None
    return memoryview(entry.body), np.cumsum(inline_bytes(entry.record), dtype=np.int64)

"""Payloads that are still in memory with the records that brought them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

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
    payloads: list[bytes | memoryview | None] = []
    bodies: dict[int, tuple[memoryview, list[int]] | None] = {}
    rows = zip(entries["sequence"].tolist(), entries["row"].tolist(), strict=True)
    for sequence, row in rows:
        if sequence not in bodies:
            bodies[sequence] = _body_of(entry_of(sequence))
        found = bodies[sequence]
        if found is None:
            payloads.append(None)
        else:
            body, bounds = found
            payloads.append(body[bounds[row] : bounds[row + 1]])
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


def _body_of(entry: LogEntry | None) -> tuple[memoryview, list[int]] | None:
    """Return a record's body, and where the payloads of its rows begin and end in it."""
    if entry is None:
        return None
    return memoryview(entry.body), [0, *inline_bytes(entry.record).cumsum(dtype=np.int64).tolist()]

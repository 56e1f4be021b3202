"""The queue of what waits: every message comes out once, whatever was entered twice."""

from __future__ import annotations

import numpy as np

from dueq.core.delivery.due_queue import DueQueue
from dueq.core.ports.entry import ENTRY, Entries, State


def waiting(*rows: tuple[int, int]) -> Entries:
    """Entries that wait: (wait_at, sequence)."""
    entries = np.zeros(len(rows), ENTRY)
    entries["wait_at"] = [row[0] for row in rows]
    entries["sequence"] = [row[1] for row in rows]
    entries["state"] = State.WAITING
    return entries


def queue_of(entries: Entries) -> DueQueue:
    by_key = {int(entry["sequence"]) << 16: entry for entry in entries}
    return DueQueue(lambda keys: np.array([by_key[key] for key in keys.tolist()], ENTRY))


def test_a_message_entered_twice_comes_out_once_even_at_the_limit_of_a_look() -> None:
    """One LEASE that named a message twice was granted, refused, and forgotten: never delivered again."""
    entries = waiting((10, 1), (20, 2))
    queue = queue_of(entries)
    queue.add(entries)
    queue.add(entries)  # the hot window shrank and grew: the same messages become hot once more
    assert queue.pop(100, 1, {}.keys())["sequence"].tolist() == [1]
    assert queue.pop(100, 1, {}.keys())["sequence"].tolist() == [2]
    assert len(queue.pop(100, 9, {}.keys())) == 0

"""The queue of a priority topic: what comes out is the first that is due, and never passes what may be on the disk."""

from __future__ import annotations

from collections.abc import KeysView

import numpy as np

from dueq.core.delivery.due_queue import NEVER_MS
from dueq.core.delivery.priority_queue import PriorityQueue
from dueq.core.ports.entry import WIDE, Entries, State
from dueq_codecs.records import U64

NOBODY: KeysView[int] = {}.keys()  # type: ignore[assignment]


class Messages:
    """Waiting messages of a partition, some of them on the disk only.

    Attributes:
        unknown: the first rank of which something may be only on the disk; None: there is none.
        end: behind this position.
    """

    def __init__(self, *rows: tuple[int, int, int]) -> None:
        self.entries = np.zeros(len(rows), WIDE)
        for name, column in zip(("rank", "wait_at", "sequence"), zip(*rows, strict=True), strict=True):
            self.entries[name] = column
        self.entries["state"] = State.WAITING
        self.unknown: int | None = None
        self.end: tuple[int, int] | None = None

    def rows(self, keys: U64) -> Entries:
        places = {int(sequence) << 16: at for at, sequence in enumerate(self.entries["sequence"])}
        return self.entries[[places[key] for key in keys.tolist()]]

    def unknown_from(self, until_ms: int) -> int | None:
        return self.unknown

    def end_of(self, of: int) -> tuple[int, int] | None:
        return self.end if of == self.unknown else None


def queue_of(messages: Messages) -> PriorityQueue:
    queue = PriorityQueue(messages)
    queue.add(messages.entries)
    return queue


def popped(queue: PriorityQueue, until_ms: int, limit: int = 100) -> list[int]:
    return queue.pop(until_ms, limit, NOBODY)["sequence"].tolist()


def test_what_is_due_comes_by_rank_and_what_is_not_stays() -> None:
    queue = queue_of(Messages((7, 10, 1), (0, 30, 2), (7, 5, 3), (3, 20, 4), (65_535, 1, 5)))
    assert popped(queue, 20) == [4, 3, 1, 5]
    assert popped(queue, 29) == []
    assert (queue.head_ms, len(queue)) == (30, 1)
    assert popped(queue, 30) == [2]
    assert (queue.head_ms, len(queue)) == (NEVER_MS, 0)


def test_of_one_rank_the_soonest_comes_first_and_then_the_one_that_was_inserted_first() -> None:
    queue = queue_of(Messages((1, 10, 4), (1, 9, 5), (1, 10, 3)))
    assert popped(queue, 10, 2) == [5, 3]
    assert popped(queue, 10) == [4]


def test_a_more_urgent_message_that_comes_later_is_next() -> None:
    messages = Messages((5, 1, 1), (5, 1, 2), (0, 2, 3))
    queue = PriorityQueue(messages)
    queue.add(messages.entries[:2])
    assert popped(queue, 2, 1) == [1]
    queue.add(messages.entries[2:])
    assert popped(queue, 2) == [3, 2]


def test_nothing_passes_what_may_be_only_on_the_disk() -> None:
    messages = Messages((1, 10, 1), (3, 10, 2), (3, 12, 3), (4, 1, 4))
    messages.unknown, messages.end = 3, (10, 2 << 16)
    queue = queue_of(messages)
    assert popped(queue, 20) == [1, 2]
    assert popped(queue, 20) == []
    messages.unknown = None
    assert popped(queue, 20) == [3, 4]


def test_a_message_whose_rank_has_changed_comes_at_its_new_place_only() -> None:
    messages = Messages((0, 10, 1), (3, 10, 2))
    queue = queue_of(messages)
    messages.entries["rank"][0] = 9
    queue.add(messages.entries[:1])
    assert popped(queue, 10) == [2, 1]
    assert popped(queue, 10) == []


def test_what_is_spoken_for_is_passed_by() -> None:
    queue = queue_of(Messages((0, 10, 1), (3, 10, 2)))
    assert queue.pop(10, 1, {1 << 16: 0}.keys())["sequence"].tolist() == [2]


def test_many_that_fall_due_together_are_counted_and_come_by_rank() -> None:
    queue = queue_of(Messages(*[(rank % 50, 1_000, rank + 1) for rank in range(500)]))
    assert queue.count_until(999, 1_000) == 0
    assert queue.count_until(1_000, 300) == 300
    assert queue.count_until(1_000, 1_000) == 500
    assert popped(queue, 1_000, 25) == [*range(1, 500, 50), *range(2, 500, 50), *range(3, 250, 50)]


def test_to_renew_forgets_what_is_gone() -> None:
    messages = Messages((0, 10, 1), (3, 10, 2), (5, 10, 3))
    queue = queue_of(messages)
    queue.renew(messages.entries[1:])
    assert len(queue) == 2
    assert popped(queue, 10) == [2, 3]


def test_a_rank_that_wakes_again_and_again_is_remembered_once() -> None:
    """Each time something was taken, one alarm more for what follows an hour later: memory grew with the traffic."""
    messages = Messages((3, 9_000, 1), *[(3, at, at + 1) for at in range(1, 101)])
    queue = PriorityQueue(messages)
    queue.add(messages.entries[:1])
    for at in range(1, 101):
        queue.add(messages.entries[at : at + 1])
        assert popped(queue, at) == [at + 1]
    assert queue._sleeping == [(9_000, 3)]
    assert popped(queue, 9_000) == [1]

"""The queue of what waits: every message comes out once, whatever was entered twice."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dueq.core.delivery import due_queue
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


@pytest.mark.parametrize("sorted_places", [0, 4096])
def test_a_message_entered_twice_comes_out_once_even_at_the_limit_of_a_look(
    monkeypatch: pytest.MonkeyPatch, sorted_places: int
) -> None:
    """One LEASE that named a message twice was granted, refused, and forgotten: never delivered again."""
    monkeypatch.setattr(due_queue, "SORTED_PLACES", sorted_places)
    entries = waiting((10, 1), (20, 2))
    queue = queue_of(entries)
    queue.add(entries)
    queue.add(entries)  # the hot window shrank and grew: the same messages become hot once more
    assert queue.pop(100, 1, {}.keys())["sequence"].tolist() == [1]
    assert queue.pop(100, 1, {}.keys())["sequence"].tolist() == [2]
    assert len(queue.pop(100, 9, {}.keys())) == 0


@pytest.mark.parametrize("sorted_places", [0, 4096])
def test_a_message_entered_twice_comes_out_once_in_a_look_at_all_of_them(
    monkeypatch: pytest.MonkeyPatch, sorted_places: int
) -> None:
    monkeypatch.setattr(due_queue, "SORTED_PLACES", sorted_places)
    entries = waiting((10, 1), (20, 2))
    queue = queue_of(entries)
    queue.add(entries)
    queue.add(entries)
    assert queue.pop(100, 9, {}.keys())["sequence"].tolist() == [1, 2]


def test_a_message_that_is_spoken_for_does_not_come_out_though_it_waits_still() -> None:
    """Its lease is in the log and not applied yet: a second one would be refused, and end the first."""
    entries = waiting((10, 1), (20, 2))
    queue = queue_of(entries)
    queue.add(entries)
    assert queue.pop(100, 9, {1 << 16: 0}.keys())["sequence"].tolist() == [2]


@pytest.mark.parametrize("sorted_places", [0, 8, 4096])
def test_messages_come_out_in_order_however_many_wait(
    monkeypatch: pytest.MonkeyPatch, sorted_places: int
) -> None:
    monkeypatch.setattr(due_queue, "SORTED_PLACES", sorted_places)
    chance = random.Random(sorted_places)
    entries = waiting(*((chance.randint(1, 30), number) for number in range(200)))
    queue, inside, left = queue_of(entries), set[tuple[int, int]](), list(range(200))
    chance.shuffle(left)
    while left or inside:
        chosen, left = left[: chance.choice((1, 1, 5, 40))], left[40:]
        if chosen:
            queue.add(entries[chosen])
            inside |= {(int(entry["wait_at"]), int(entry["sequence"])) for entry in entries[chosen]}
        until_ms, limit = chance.randint(1, 30), chance.randint(1, 20)
        expected = sorted(row for row in inside if row[0] <= until_ms)[:limit]
        found = queue.pop(until_ms, limit, {}.keys())
        assert list(zip(found["wait_at"].tolist(), found["sequence"].tolist(), strict=True)) == expected
        inside -= set(expected)
        assert len(queue) == len(inside)
        assert queue.count_until(until_ms, 200) == sum(wait_at <= until_ms for wait_at, _ in inside)


@pytest.mark.parametrize("state", [State.WAITING, State.LEASED])
def test_at_the_place_of_a_message_that_was_moved_or_leased_nothing_comes_out(state: State) -> None:
    """It would be delivered sooner than its new instant, or to a second consumer."""
    entries = waiting((10, 1), (10, 2))
    queue = queue_of(entries)
    queue.add(entries)
    entries["state"][0] = state
    if state == State.WAITING:
        entries["wait_at"][0] = 30
    assert queue.pop(20, 9, {}.keys())["sequence"].tolist() == [2]

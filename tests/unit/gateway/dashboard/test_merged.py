"""Messages of all partitions in one order, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

pytest.importorskip("fastapi")

from dueq.gateway.dashboard.merged import Merged
from dueq.gateway.problems import Unfit


class Topic:
    """A client of a topic whose partitions hold messages that are due at these instants.

    A page has no more than `room` messages, however many are asked for.
    """

    def __init__(self, partitions: list[list[int]], kind: str = "timeline", room: int = 1000) -> None:
        self._kind, self._room = kind, room
        self.messages = [
            [
                SimpleNamespace(
                    id=f"{number}-{row:03}",
                    key=f"{'odd' if due % 2 else 'even'}-{due}",
                    waits_until=due,
                    died_at=0,
                    rank=0,
                    place=(due, f"{number}-{row:03}", 0),
                )
                for row, due in enumerate(sorted(dues))
            ]
            for number, dues in enumerate(partitions)
        ]
        self.looked_at = 0

    async def describe(self, topic: str) -> Any:
        return SimpleNamespace(kind=self._kind, partitions=len(self.messages))

    async def browse_pages(
        self,
        topic: str,
        partition: int,
        *,
        start: int | None,
        end: int | None,
        after: Any,
        limit: int,
        state: str,
    ) -> AsyncGenerator[Any, None]:
        if end is not None and end <= (start or 0):
            return
        rows = [each for each in self.messages[partition] if after is None or each.place > after]
        count = min(limit, self._room)
        self.looked_at += len(rows[:count])
        yield Page(rows[:count], len(rows) <= count)


class Page:
    def __init__(self, rows: list[Any], last: bool) -> None:
        self._rows, self.last = rows, last

    def __len__(self) -> int:
        return len(self._rows)

    def messages(self) -> list[Any]:
        return self._rows


def walked(topic: Topic, limit: int, prefix: str = "") -> list[list[Any]]:
    """All pages."""

    async def walk() -> list[list[Any]]:
        pages, cursor = list[list[Any]](), ""
        while True:
            page, following = await Merged("mail", "waiting", None, None, prefix, limit).page(topic, cursor)  # type: ignore[arg-type]
            pages.append(page)
            if following is None:
                return pages
            cursor = following

    return asyncio.run(walk())


PARTITIONS = some.lists(some.lists(some.integers(0, 30), max_size=12), min_size=1, max_size=5)


@given(PARTITIONS, some.integers(1, 6))
def test_pages_have_every_message_once_the_soonest_first(partitions: list[list[int]], limit: int) -> None:
    pages = walked(Topic(partitions), limit)
    dues = [message.waits_until for page in pages for message in page]
    assert dues == sorted(due for dues in partitions for due in dues)
    assert all(len(page) <= limit for page in pages)


@given(PARTITIONS, some.integers(1, 6), some.integers(1, 20))
def test_a_search_by_key_finds_them_all(partitions: list[list[int]], limit: int, room: int) -> None:
    """Also where a page is full of other messages: a broker's page has a bounded number of bytes."""
    topic = Topic(partitions, room=room)
    found = [message.waits_until for page in walked(topic, limit, "odd-") for message in page]
    assert found == sorted(due for dues in partitions for due in dues if due % 2)


def test_no_message_comes_twice_though_partitions_are_added_between_two_pages() -> None:
    merged = Merged("mail", "waiting", None, None, "", 2)
    before = Topic([[1, 2, 5], [3]])
    first, cursor = asyncio.run(merged.page(before, ""))  # type: ignore[arg-type]
    assert cursor is not None
    grown = Topic([[1, 2, 5], [3], [4]])
    second, cursor = asyncio.run(merged.page(grown, cursor))  # type: ignore[arg-type]
    assert [message.waits_until for message in [*first, *second]] == [1, 2, 3, 4]
    assert cursor is not None
    assert [message.waits_until for message in asyncio.run(merged.page(grown, cursor))[0]] == [5]  # type: ignore[arg-type]


def test_a_page_looks_at_so_many_messages_of_each_partition_and_no_more() -> None:
    topic = Topic([list(range(100_000)), list(range(100_000))])
    page, _ = asyncio.run(Merged("mail", "waiting", None, None, "", 50).page(topic, ""))  # type: ignore[arg-type]
    assert (len(page), topic.looked_at) == (50, 100)


def test_groups_take_turns_so_their_partitions_are_not_merged() -> None:
    found = [message.id for page in walked(Topic([[9], [1]], "fair"), 5) for message in page]
    assert found == ["0-000", "1-000"]


@given(PARTITIONS, some.integers(1, 6))
def test_one_partition_of_groups_follows_the_other_on_full_pages(
    partitions: list[list[int]], limit: int
) -> None:
    topic = Topic(partitions, "fair")
    pages = walked(topic, limit)
    assert [each.id for page in pages for each in page] == [
        each.id for part in topic.messages for each in part
    ]
    assert all(len(page) == limit for page in pages[:-1])


@pytest.mark.parametrize(("begin", "end"), [(2, 1), (1, 1), (None, 0)])
def test_nothing_is_in_an_interval_that_ends_before_it_begins(begin: int | None, end: int) -> None:
    wanted = Merged("mail", "waiting", begin, end, "", 5)
    assert asyncio.run(wanted.page(Topic([[1], [2]]), "")) == ([], None)  # type: ignore[arg-type]


def test_a_cursor_is_what_the_page_before_said() -> None:
    with pytest.raises(Unfit, match="cursor"):
        asyncio.run(Merged("mail", "waiting", None, None, "", 5).page(Topic([[1]]), "nonsense"))  # type: ignore[arg-type]

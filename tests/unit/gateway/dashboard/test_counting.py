"""Seconds that are only estimated are counted now and then, and what was counted takes their place."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq.client.surveys import SecondsCounted
from dueq.errors import Unavailable
from dueq.gateway.dashboard.counting import Counting
from dueq.gateway.dashboard.snapshot import Ahead, Wanted

AT_MS = 1_000_000_000
EXACT_MS = AT_MS + 10_000
WANTED: Wanted = ("mail", 300)


class Mesh:
    """A service whose counts are these; every count is counted."""

    def __init__(self, counts: list[tuple[int, int]], complete: bool = True) -> None:
        self.client = self.connection = self
        self.found = SecondsCounted(counts, complete)
        self.counted = 0
        self.away = False

    async def follow(self, steps: object, timeout: float) -> SecondsCounted:
        self.counted += 1
        if self.away:
            raise Unavailable("no leader")
        return self.found


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def estimate(exact_ms: int | None = EXACT_MS) -> dict[Wanted, Ahead]:
    counts = [(AT_MS + 1_000, 3), (AT_MS + 10_000, 5), (AT_MS + 20_000, 5), (AT_MS + 30_000, 5)]
    return {WANTED: Ahead(counts, exact_ms)}


async def improved(counting: Counting, at_ms: int = AT_MS) -> Ahead:
    """What is shown once the count under way has come."""
    found = counting.improved(estimate(), at_ms)[WANTED]
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    return found


def test_what_was_counted_takes_the_place_of_what_was_estimated() -> None:
    async def work() -> None:
        counting = Counting(Mesh([(AT_MS + 20_000, 80_000)]))  # type: ignore[arg-type]
        assert (await improved(counting)).exact_until_ms == EXACT_MS
        found = await improved(counting)
        assert found.counts == [(AT_MS + 1_000, 3), (AT_MS + 20_000, 80_000)]
        assert found.exact_until_ms is not None
        assert found.exact_until_ms >= AT_MS + 300_000
        assert found.more == {AT_MS + 10_000: -5, AT_MS + 20_000: 79_995, AT_MS + 30_000: -5}

    run(work())


def test_what_was_not_counted_to_its_end_is_a_lower_bound_and_stays_an_estimate() -> None:
    async def work() -> None:
        counting = Counting(Mesh([(AT_MS + 10_000, 2), (AT_MS + 20_000, 80_000)], complete=False))  # type: ignore[arg-type]
        await improved(counting)
        found = await improved(counting)
        assert found.counts == [
            (AT_MS + 1_000, 3), (AT_MS + 10_000, 5), (AT_MS + 20_000, 80_000), (AT_MS + 30_000, 5)
        ]  # fmt: skip
        assert found.exact_until_ms == EXACT_MS

    run(work())


def test_it_is_counted_again_after_a_while_only_and_not_where_all_is_exact() -> None:
    async def work() -> None:
        mesh = Mesh([])
        counting = Counting(mesh)  # type: ignore[arg-type]
        counting.improved(estimate(None), AT_MS)
        for seconds in (0, 1, 20, 29):
            await improved(counting, AT_MS + seconds * 1000)
        assert mesh.counted == 1
        await improved(counting, AT_MS + 31_000)
        assert mesh.counted == 2

    run(work())


def test_a_count_that_fails_leaves_the_estimate() -> None:
    async def work() -> None:
        mesh = Mesh([])
        mesh.away = True
        counting = Counting(mesh)  # type: ignore[arg-type]
        await improved(counting)
        assert (await improved(counting, AT_MS + 6_000)).exact_until_ms == EXACT_MS
        assert mesh.counted == 2
        await counting.close()

    run(work())

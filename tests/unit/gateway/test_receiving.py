"""Waiting at a gateway: one pull for a whole line, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq.errors import TopicNotFound
from dueq.gateway.receiving import Receiving

LEASE = timedelta(seconds=30)


class Mesh(Receiving):
    """Receives from a list instead of a mesh.

    Attributes:
        asked: how many messages each pull was for.
        given_back: messages that were released.
    """

    def __init__(self) -> None:
        super().__init__(client=None)  # type: ignore[arg-type]
        self.ready: asyncio.Queue[list[Any]] = asyncio.Queue()
        self.asked: list[int] = []
        self.given_back: list[Any] = []

    async def pull(self, topic: str, most: int, *rest: Any) -> list[Any]:
        self.asked.append(most)
        found = await self.ready.get()
        if isinstance(found, Exception):
            raise found
        return found

    def release(self, topic: str, messages: Sequence[Any]) -> None:
        self.given_back += messages

    def wait(self, most: int = 1, wait_s: float | None = None) -> asyncio.Task[list[Any]]:
        return asyncio.create_task(self.take("t", most, wait_s, LEASE))


async def settle_down() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_thousand_that_wait_cost_one_pull_and_leave_nothing() -> None:
    async def run() -> None:
        mesh = Mesh()
        waiting = [mesh.wait() for _ in range(1000)]
        await settle_down()
        assert (len(mesh.asked), len(mesh)) == (1, 1000)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert len(mesh) == 0
        assert not mesh._lines

    asyncio.run(run())


def test_what_comes_goes_round_and_the_rest_goes_back() -> None:
    async def run() -> None:
        mesh = Mesh()
        waiting = [mesh.wait(2), mesh.wait(2), mesh.wait(1)]
        await settle_down()
        await mesh.ready.put([1, 2, 3, 4, 5, 6])
        assert [await task for task in waiting] == [[1, 4], [2, 5], [3]]
        assert mesh.given_back == [6]

    asyncio.run(run())


def test_those_that_got_nothing_wait_by_the_next_pull() -> None:
    async def run() -> None:
        mesh = Mesh()
        first, second = mesh.wait(), mesh.wait()
        await mesh.ready.put([1])
        assert await first == [1]
        await mesh.ready.put([2])
        assert await second == [2]
        assert not mesh.given_back

    asyncio.run(run())


def test_a_message_that_comes_as_its_receiver_leaves_goes_back() -> None:
    async def run() -> None:
        mesh = Mesh()
        leaving = mesh.wait()
        await settle_down()
        line = next(iter(mesh._lines.values()))
        line._deal([1])
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert mesh.given_back == [1]

    asyncio.run(run())


def test_an_error_is_everybodys_and_the_end_is_nobodys() -> None:
    async def run() -> None:
        mesh = Mesh()
        waiting = [mesh.wait() for _ in range(3)]
        await mesh.ready.put(TopicNotFound("t"))  # type: ignore[arg-type]
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in found] == [TopicNotFound] * 3
        last = [mesh.wait(), asyncio.create_task(mesh.take("t", 1, None, LEASE, "name"))]
        await settle_down()
        mesh.stop()
        assert [await task for task in last] == [[], []]
        assert await mesh.wait() == []

    asyncio.run(run())

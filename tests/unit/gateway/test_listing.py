"""Pages of lists are bounded, whatever the messages are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq import limits
from dueq.gateway.listing import Wanted


class Mesh:
    """A topic of one partition, with payloads of these lengths."""

    def __init__(self, *sizes: int) -> None:
        self._messages = [
            SimpleNamespace(place=(place, f"{place:026}", 0), key="", payload=bytes(size))
            for place, size in enumerate(sizes, 1)
        ]

    async def describe(self, topic: str) -> Any:
        return SimpleNamespace(partitions=1)

    async def browse_pages(self, *_: Any, after: Any, payloads: bool, **__: Any) -> AsyncIterator[Any]:
        assert payloads
        begin = after[0] if after else 0
        yield SimpleNamespace(messages=lambda: self._messages[begin:])


def sizes(mesh: Any) -> list[list[int]]:
    """Read all pages; return the lengths of their payloads."""

    async def run() -> list[list[int]]:
        found, cursor = list[list[int]](), ""
        while True:
            page = await Wanted("t", "waiting", None, None, "", True, 1000).page(mesh, cursor)
            found.append([len(each.payload or b"") for each in page.messages])
            if page.cursor is None:
                return found
            cursor = page.cursor

    return asyncio.run(run())


def test_a_page_holds_so_many_bytes_of_payloads_or_one_message() -> None:
    most = limits.GATEWAY_LIST_BYTES_MAX
    assert sizes(Mesh(most // 2, most // 2, 1, most, most + 1, 0, 1)) == [
        [most // 2, most // 2], [1], [most], [most + 1], [0, 1],
    ]  # fmt: skip

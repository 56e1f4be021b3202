"""Messages of doq that get another priority: as they wait, and as they are given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq import AsyncClient
from dueq.gateway.faces.doq.queue import Queue, topic_of
from dueq.gateway.faces.doq.rates import Rates
from dueq.gateway.faces.doq.verbs import Doq
from dueq.gateway.service import Service
from dueq.testing import AsyncMesh, amesh

TOPIC = topic_of("q")


def run(story: Callable[[AsyncMesh, AsyncClient, Doq], Coroutine[Any, Any, None]], kind: Any) -> None:
    async def told() -> None:
        with amesh() as mesh:
            client = mesh.client()
            doq = Doq(Service(client), Rates(lambda: 0))
            await doq.create(Queue("q", kind, "round_robin" if kind == "fair" else ""))
            await story(mesh, client, doq)

    asyncio.run(asyncio.wait_for(told(), 30))


def test_a_waiting_consumer_gets_what_is_brought_forward_with_its_new_priority() -> None:
    """It was moved first, and delivered with a rank that meant an instant; the caller was told that it is in flight."""

    async def story(mesh: AsyncMesh, client: AsyncClient, doq: Doq) -> None:
        ahead = mesh.now_ms // 1000 + 600
        number = await doq.enqueue("q", None, "default", ahead, "x", {})
        waiting = asyncio.create_task(doq.take("q", False, 60.0))
        await mesh.advance(1)
        await doq.prioritize("q", number, 1)
        await mesh.advance(1)
        message, _ = await waiting
        assert (message.number, message.priority) == (number, 1)

    run(story, "delayed")


def test_what_is_put_off_waits_for_its_new_instant() -> None:
    async def story(mesh: AsyncMesh, client: AsyncClient, doq: Doq) -> None:
        number = await doq.enqueue("q", None, "default", 5, "x", {})
        ahead = mesh.now_ms // 1000 + 600
        await doq.prioritize("q", number, ahead)
        assert (await doq.get("q", number)).priority == ahead
        waiting = asyncio.create_task(doq.take("q", False, 1200.0))
        await mesh.advance(500)
        assert not waiting.done()
        await mesh.advance(200)
        assert (await waiting)[0].priority == ahead

    run(story, "delayed")

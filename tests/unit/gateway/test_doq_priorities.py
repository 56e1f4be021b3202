"""Messages of doq that get another priority: as they wait, and as they are given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq import AsyncClient
from dueq.errors import InvalidRequest
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


def test_a_message_that_is_given_back_with_a_priority_stays_what_it_is() -> None:
    """It was written anew from what doq shows: bytes that are no text were lost, and all that it does not show."""

    async def story(mesh: AsyncMesh, client: AsyncClient, doq: Doq) -> None:
        payload = b"\xff\xfe\x00bytes"
        made = await client.producer(TOPIC).schedule(
            payload,
            timedelta(0),
            key="5",
            rank=7,
            headers={"a": "b"},
            expires=timedelta(hours=1),
            max_attempts=3,
        )
        before = await client.get(TOPIC, made)
        for attempt, priority in ((1, 3), (2, 9)):
            message, _ = await doq.take("q", False, 5.0)
            await doq.nack("q", message.number, priority, None)
            found = await client.get(TOPIC, key="5", payload=True)
            assert (found.id, found.payload, found.rank) == (made, payload, priority)
            assert (found.headers, found.expires, found.attempt) == ({"a": "b"}, before.expires, attempt)
            assert found.waits_until <= mesh.now_ms + 1
        message, _ = await doq.take("q", False, 5.0)
        await doq.nack("q", message.number, 1, None)  # its last attempt, and so it is dead
        assert (await client.get(TOPIC, made)).state == "dead"

    run(story, "delayed")


@pytest.mark.parametrize("kind", ["delayed", "fair"])
@pytest.mark.parametrize("priority", [0, 9])
def test_metadata_of_what_is_given_back_take_the_place_of_the_present_ones(kind: str, priority: int) -> None:
    async def story(mesh: AsyncMesh, client: AsyncClient, doq: Doq) -> None:
        number = await doq.enqueue("q", None, "g", 5, "x", {"a": "b"})
        await doq.take("q", False, 5.0)
        await doq.nack("q", number, priority, {"c": "d"})
        message, _ = await doq.take("q", False, 5.0)
        assert (message.number, message.priority, message.metadata) == (number, priority or 5, {"c": "d"})
        assert (message.content, message.group) == ("x", "g" if kind == "fair" else "default")

    run(story, kind)


def test_what_is_given_back_for_an_instant_waits_for_it() -> None:
    async def story(mesh: AsyncMesh, client: AsyncClient, doq: Doq) -> None:
        number = await doq.enqueue("q", None, "default", 5, "x", {})
        await doq.take("q", False, 5.0)
        ahead = mesh.now_ms // 1000 + 600
        await doq.nack("q", number, ahead, None)
        waiting = asyncio.create_task(doq.take("q", False, 1200.0))
        await mesh.advance(500)
        assert not waiting.done()
        await mesh.advance(200)
        assert (await waiting)[0].priority == ahead

    run(story, "delayed")


@pytest.mark.parametrize(
    ("priority", "metadata"), [(1 << 62, None), (1, {str(each): "" for each in range(65)})]
)
def test_what_cannot_be_leaves_the_message_in_flight(priority: int, metadata: dict[str, str] | None) -> None:
    async def story(mesh: AsyncMesh, client: AsyncClient, doq: Doq) -> None:
        number = await doq.enqueue("q", None, "default", 5, "x", {})
        await doq.take("q", False, 5.0)
        with pytest.raises(InvalidRequest):
            await doq.nack("q", number, priority, metadata)
        await doq.ack("q", number)

    run(story, "delayed")

"""What is given to a consumer that it cannot settle, or cannot run: it is refused, and nothing is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dueq import Consumer, InvalidRequest
from dueq.testing import Mesh, amesh, mesh

SETTLE: list[Callable[[Consumer, Any], object]] = [
    lambda consumer, batch: consumer.ack(batch),
    lambda consumer, batch: consumer.ack(batch, wait=False),
    lambda consumer, batch: consumer.nack(batch, reason="no"),
    lambda consumer, batch: consumer.release(batch),
    lambda consumer, batch: consumer.extend(batch, 60.0),
]


@pytest.mark.parametrize("settle", SETTLE)
def test_a_batch_has_messages_of_this_consumer_only(
    dueq_mesh: Mesh, settle: Callable[[Consumer, Any], object]
) -> None:
    client = dueq_mesh.client()
    client.create_topic("t")
    client.producer("t").schedule_many([b"1", b"2"], 0)
    with client.consumer("t", credit=1) as one, client.consumer("t", credit=1) as other:
        [mine], [foreign] = one.receive(timeout=1), other.receive(timeout=1)
        for batch in (5, None, mine, [mine, 5], [mine, mine.id], [mine, foreign]):
            with pytest.raises(InvalidRequest, match="messages"):
                settle(one, batch)
        assert [client.get("t", each.id).token for each in (mine, foreign)] == [mine.token, foreign.token]
        one.ack([mine])
        other.ack([foreign])


HANDLERS: tuple[Any, ...] = (None, 5, "handler", b"", [print])


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_handler_can_be_called(handler: Any) -> None:
    with mesh() as dueq_mesh:
        client = dueq_mesh.client()
        client.create_topic("t")
        consumer = client.consumer("t")
        consumer.stop()  # or it would run for ever if it began
        with pytest.raises(InvalidRequest, match="a handler is a function that takes a message, not"):
            consumer.run(handler)


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_handler_can_be_called_by_tasks(handler: Any) -> None:
    async def run() -> None:
        with amesh() as dueq_amesh:
            client = dueq_amesh.client()
            await client.create_topic("t")
            consumer = client.consumer("t")
            consumer.stop()
            with pytest.raises(InvalidRequest, match="a handler is a function that takes a message, not"):
                await consumer.run(handler)

    asyncio.run(run())

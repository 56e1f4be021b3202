"""Clients of doq that go before their message comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request

from dueq.gateway.faces.doq import messages
from dueq.gateway.faces.doq.verbs import Message


def test_no_message_is_taken_for_a_client_that_has_gone() -> None:
    """It would be in flight for half an hour."""

    async def run() -> None:
        asked, given_up = asyncio.Event(), asyncio.Event()

        async def take(*_: Any) -> None:
            asked.set()
            try:
                await asyncio.Event().wait()  # the mesh is busy
            finally:
                given_up.set()

        async def receive() -> dict[str, str]:
            await asked.wait()
            return {"type": "http.disconnect"}

        request: Any = SimpleNamespace(query_params=QueryParams(""), receive=receive)
        doq: Any = SimpleNamespace(take=take)
        answer: Any = SimpleNamespace(take=None)
        with pytest.raises(ClientDisconnect):
            await messages.dequeued("mail", doq, answer, request)
        await given_up.wait()

    asyncio.run(asyncio.wait_for(run(), 10))


@pytest.mark.parametrize(("said", "back"), [("", [("mail", ("id", 17))]), ("true", [])])
def test_a_message_that_comes_as_its_client_goes_goes_back(said: str, back: list[Any]) -> None:
    """What is done as it is taken does not: it comes once at most."""
    given_back = list[Any]()

    async def take(*_: Any) -> Any:
        return Message(1, "default", 0, "x", {}), ("id", 17)

    async def give_back(name: str, lease: Any) -> None:
        given_back.append((name, lease))

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def run() -> None:
        request: Any = Request(
            {
                "type": "http",
                "method": "GET",
                "path": "/",
                "headers": [],
                "query_string": f"ack={said}".encode(),
            },
            receive,
        )
        doq: Any = SimpleNamespace(take=take, give_back=give_back)
        answer: Any = SimpleNamespace(take=None)
        with pytest.raises(ClientDisconnect):
            await messages.dequeued("mail", doq, answer, request)

    asyncio.run(asyncio.wait_for(run(), 10))
    assert given_back == back


@pytest.mark.parametrize("ack", [False, True])
def test_a_message_that_a_stream_is_not_through_with_goes_back(ack: bool) -> None:
    """Else it is in flight for half an hour. grpc closes what yields answers if a call ends while one is written."""
    pytest.importorskip("grpc")
    from dueq.gateway.faces.doq.rpc import RpcServer

    given_back = list[Any]()

    async def take(name: str, ack: bool, _wait_s: float) -> Any:
        return Message(1, "default", 0, "x", {}), ("id", 17)

    async def give_back(name: str, lease: Any) -> None:
        given_back.append((name, lease))

    async def requests() -> AsyncIterator[Any]:
        for _ in range(2):
            yield SimpleNamespace(queueName="mail", ack=ack)

    async def run() -> None:
        doq: Any = SimpleNamespace(take=take, give_back=give_back)
        answers: Any = RpcServer(doq, "", "new")._dequeue_stream(requests(), None)
        await anext(answers)
        await anext(answers)
        assert not given_back, "the first is written"
        await answers.aclose()
        assert given_back == ([] if ack else [("mail", ("id", 17))])

    asyncio.run(asyncio.wait_for(run(), 10))

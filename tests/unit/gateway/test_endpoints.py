"""Endpoints by HTTP."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Message

from dueq.client.endpoints import find
from dueq.errors import Disconnected, VersionDiffers
from dueq.gateway.service import Service
from dueq.gateway.v1 import endpoints
from dueq.testing import amesh


def test_a_test_ends_when_nobody_waits_for_its_answer() -> None:
    """A receiver may take half an hour, and its connection is one of those of all endpoints."""

    async def run() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        class Webhooks:
            async def test(self, name: str) -> None:
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()

        async def receive() -> Message:
            await begun.wait()
            return {"type": "http.disconnect"}

        webhooks: Any = Webhooks()
        with pytest.raises(ClientDisconnect):
            await endpoints.tested("billing", webhooks, Request({"type": "http"}, receive))
        await ended.wait()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_new_secret_is_told_whatever_the_mesh_says_after_it_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is never shown again."""

    async def gone(_name: str) -> None:
        raise Disconnected("no broker could be reached in time")

    async def run() -> None:
        with amesh() as found:
            client = found.client()
            await client.create_topic("bills")
            webhooks: Any = SimpleNamespace(look=lambda: None)
            service, response = Service(client), Response()
            with monkeypatch.context() as patch:
                patch.setattr(client, "endpoint", gone)
                asked = endpoints.NewEndpoint(topic="bills", url="https://example.com/hook")
                first = await endpoints.put("billing", asked, service, webhooks, None, response)
                second = await endpoints.rotated("billing", service, webhooks)
            assert response.headers["etag"] == '"billing.1"'
            stored = await client.connection.follow(find("billing"), None)
            assert [each for each, _ in stored.document["secrets"]] == [second.secret, first.secret]
            assert [each.id for each in second.secrets] == [each for each, _ in stored.info().secrets]
            assert (first.sealed, second.sealed, second.version) == (None, None, "2")

    asyncio.run(asyncio.wait_for(run(), 30))


def test_an_endpoint_that_must_be_there_is_changed_and_not_created() -> None:
    async def run() -> None:
        with amesh() as found:
            client = found.client()
            await client.create_topic("bills")
            webhooks: Any = SimpleNamespace(look=lambda: None)
            asked = endpoints.NewEndpoint(topic="bills", url="https://example.com/hook")

            async def put(if_match: str | None) -> endpoints.Endpoint:
                version = await endpoints._seen("billing", if_match)
                return await endpoints.put("billing", asked, Service(client), webhooks, version, Response())

            with pytest.raises(VersionDiffers, match="is not there, and one was expected"):
                await put("*")
            assert await client.endpoints() == []
            assert (await put(None)).version == "1"
            asked.max_in_flight = 3
            assert (await put(" * ")).version == "2"

    asyncio.run(asyncio.wait_for(run(), 30))

"""Which endpoints a gateway serves."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from dueq.client.endpoints import StoredEndpoint, new_secret
from dueq.errors import Disconnected, EndpointNotFound, SecretsSealed
from dueq.gateway.webhooks import watching
from dueq.gateway.webhooks.watching import Webhooks
from dueq.sealing import Keys


class Mesh:
    """A client whose mesh has the endpoints that the test says.

    Attributes:
        found: one after the other what is read: endpoints, or an error; the last one stays.
        opened, closed: consumers' topics.
    """

    def __init__(self, *found: list[StoredEndpoint] | Exception) -> None:
        self.found = list(found)
        self.opened: asyncio.Queue[str] = asyncio.Queue()
        self.closed: asyncio.Queue[str] = asyncio.Queue()
        self.connection = self

    async def clock(self, *_: Any) -> Any:
        return lambda: 1_000_000_000

    async def follow(self, steps: Any, _timeout: float | None) -> Any:
        steps.close()
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, Exception):
            raise found
        return found

    def consumer(self, topic: str, *_: Any, **__: Any) -> Consumer:
        self.opened.put_nowait(topic)
        return Consumer(self, topic)


class Consumer:
    """Gets nothing."""

    def __init__(self, mesh: Mesh, topic: str) -> None:
        self._mesh, self._topic = mesh, topic

    async def __aiter__(self) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    async def close(self) -> None:
        self._mesh.closed.put_nowait(self._topic)


def stored(topic: str, version: int = 1, disabled: str = "") -> StoredEndpoint:
    document = {
        "name": f"of-{topic}", "version": version, "url": "https://example.com", "timeout_ms": 1000, "in_flight": 1,
        "headers": {}, "filter": {}, "targets": False, "disabled": disabled, "secrets": [[new_secret(), 0]],
    }  # fmt: skip
    return StoredEndpoint(topic, version, False, 0, document)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_POLL_S", 0.01)


def test_what_is_in_use_is_served_as_it_is_now() -> None:
    async def story() -> None:
        mesh = Mesh([stored("a"), stored("b"), stored("c", disabled="410")])
        webhooks = Webhooks(mesh)  # type: ignore[arg-type]
        webhooks.start()
        assert sorted([await mesh.opened.get(), await mesh.opened.get()]) == ["a", "b"]
        mesh.found = [[stored("a", 2), stored("b")]]
        assert (await mesh.opened.get(), await mesh.closed.get()) == ("a", "a")
        mesh.found = [[stored("a", 2), stored("b", disabled="410")]]
        assert await mesh.closed.get() == "b"
        assert webhooks.counters("of-b") is not None
        mesh.found = [[]]
        assert await mesh.closed.get() == "a"
        await webhooks.close()
        assert mesh.opened.empty()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_sealed_endpoints_are_served_by_who_has_the_key_and_others_say_so() -> None:
    async def story() -> None:
        keys = Keys([b64encode(bytes(32)).decode()])
        plain = stored("a")
        sealed = replace(plain, document=keys.sealed(plain.document))
        mesh = Mesh([sealed, stored("b")])
        webhooks = Webhooks(mesh)  # type: ignore[arg-type]
        webhooks.start()
        assert await mesh.opened.get() == "b"
        counters = webhooks.counters("of-a")
        assert counters is not None
        assert "and this gateway has none: give it the brokers' DUEQ_SECRETS_KEY" in counters.last_failure
        mesh.found = [sealed]
        with pytest.raises(SecretsSealed):
            await webhooks.test("of-a")
        await webhooks.close()
        mesh = Mesh([sealed])
        webhooks = Webhooks(mesh, keys=keys)  # type: ignore[arg-type]
        webhooks.start()
        assert await mesh.opened.get() == "a"
        await webhooks.close()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_errors_end_nothing() -> None:
    async def story() -> None:
        mesh = Mesh(
            [stored("a")], Disconnected("nobody there"), KeyError("a bug"), [stored("a"), stored("b")]
        )
        webhooks = Webhooks(mesh)  # type: ignore[arg-type]
        webhooks.start()
        assert [await mesh.opened.get(), await mesh.opened.get()] == ["a", "b"]
        assert mesh.closed.empty()
        await webhooks.close()
        assert sorted([await mesh.closed.get(), await mesh.closed.get()]) == ["a", "b"]
        await webhooks.close()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_an_endpoint_that_is_not_there_cannot_be_tested() -> None:
    async def story() -> None:
        webhooks = Webhooks(Mesh(EndpointNotFound("there is no endpoint 'x'")))  # type: ignore[arg-type]
        with pytest.raises(EndpointNotFound):
            await webhooks.test("x")

    asyncio.run(story())

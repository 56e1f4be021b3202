"""Which endpoints a gateway serves."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from dueq import Outcome, Target
from dueq.client.endpoints import StoredEndpoint, new_secret
from dueq.errors import Busy, Disconnected, EndpointNotFound, SecretsSealed, TopicNotFound
from dueq.gateway.webhooks import watching
from dueq.gateway.webhooks.answers import Answer
from dueq.gateway.webhooks.room import Room
from dueq.gateway.webhooks.watching import Webhooks
from dueq.sealing import Keys
from dueq_codecs.records import FILTERED


class Mesh:
    """A client whose mesh has the endpoints that the test says.

    Attributes:
        found: one after the other what is read: endpoints, or an error; the last one stays.
        opened, closed: consumers' topics.
        messages: what consumers get; an error ends them.
        settled: what was settled without a consumer.
    """

    def __init__(self, *found: list[StoredEndpoint] | Exception) -> None:
        self.found = list(found)
        self.opened: asyncio.Queue[str] = asyncio.Queue()
        self.closed: asyncio.Queue[str] = asyncio.Queue()
        self.messages: asyncio.Queue[Any] = asyncio.Queue()
        self.settled: asyncio.Queue[Any] = asyncio.Queue()
        self.connection = self

    async def clock(self, *_: Any) -> Any:
        return lambda: 1_000_000_000

    async def follow(self, steps: Any, _timeout: float | None) -> Any:
        steps.close()
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def settle(self, *settled: Any) -> list[Outcome]:
        self.settled.put_nowait(settled)
        return [Outcome.DONE]

    def consumer(self, topic: str, *_: Any, **__: Any) -> Consumer:
        self.opened.put_nowait(topic)
        return Consumer(self, topic)


class Consumer:
    """One of a topic."""

    def __init__(self, mesh: Mesh, topic: str) -> None:
        self._mesh, self._topic = mesh, topic

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            message = await self._mesh.messages.get()
            if isinstance(message, Exception):
                raise message
            yield message

    async def close(self) -> None:
        self._mesh.closed.put_nowait(self._topic)


class Receiver:
    """A sender whose requests are answered when the test says so.

    Attributes:
        begun: one of each request.
        answer: of all.
    """

    def __init__(self) -> None:
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def send(self, *_: Any) -> Answer:
        self.begun.put_nowait(None)
        return await asyncio.shield(self.answer)

    async def close(self) -> None:
        pass


def begin(webhooks: Webhooks) -> None:
    """Begin where nothing is sent."""
    webhooks.start(Receiver(), Room(8))  # type: ignore[arg-type]


async def sent_to_a_target(mesh: Mesh) -> tuple[Webhooks, Receiver]:
    """Have a message sent to a target that may take ten minutes, by an endpoint that gives others no time."""
    receiver = Receiver()
    payload, headers = Target("https://example.org/", deadline=600.0).around(b"x")

    async def extend(*_: Any, **__: Any) -> None:
        pass

    mesh.messages.put_nowait(
        SimpleNamespace(
            id="m0", token=7, key="", topic="a", due=1, released_at=2, attempt=1, expires=0, lease=60.0,
            payload=payload, headers=headers, extend=extend,
        )
    )  # fmt: skip
    webhooks = Webhooks(mesh)  # type: ignore[arg-type]
    webhooks.start(receiver, Room(8))  # type: ignore[arg-type]
    assert await mesh.opened.get() == "a"
    await receiver.begun.get()
    return webhooks, receiver


SECRET = new_secret()


def stored(
    topic: str,
    version: int = 1,
    disabled: str = "",
    timeout_ms: int = 1000,
    url: str = "https://example.com",
    name: str = "",
) -> StoredEndpoint:
    document = {
        "name": name or f"of-{topic}", "version": version, "url": url, "timeout_ms": timeout_ms,
        "in_flight": 1, "headers": {}, "filter": {}, "targets": True, "disabled": disabled,
        "secrets": [[SECRET, 0]],
    }  # fmt: skip
    return StoredEndpoint(topic, version, False, 0, document)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_POLL_S", 0.01)


def test_what_is_in_use_is_served_as_it_is_now() -> None:
    async def story() -> None:
        mesh = Mesh([stored("a"), stored("b"), stored("c", disabled="410")])
        webhooks = Webhooks(mesh)  # type: ignore[arg-type]
        begin(webhooks)
        assert sorted([await mesh.opened.get(), await mesh.opened.get()]) == ["a", "b"]
        mesh.found = [[stored("a", 2), stored("b")]]
        assert (await mesh.opened.get(), await mesh.closed.get()) == ("a", "a")
        mesh.found = [[stored("a", 2), stored("b", disabled="410")]]
        assert await mesh.closed.get() == "b"
        assert webhooks.counters("b", "of-b") is not None
        mesh.found = [[]]
        assert await mesh.closed.get() == "a"
        await webhooks.close()
        assert mesh.opened.empty()

    asyncio.run(asyncio.wait_for(story(), 60))


def filtering(*words: str) -> list[StoredEndpoint]:
    """The endpoint of a topic that wants these kinds of messages."""
    found = stored("a")
    return [replace(found, document={**found.document, "filter": {"kind": list(words)}})]


def letter(settled: asyncio.Queue[str]) -> Any:
    """A message of a kind."""

    async def ack(*, reason: str) -> None:
        settled.put_nowait(reason)

    async def release(**_: Any) -> None:
        settled.put_nowait("released")

    return SimpleNamespace(
        id="m0", headers={"kind": "letter"}, lease=60.0, expires=0, released_at=2, ack=ack, release=release
    )


@pytest.mark.parametrize(
    ("following", "becomes"),
    [
        (filtering("bill"), FILTERED),
        (filtering("bill", "letter"), "released"),
        (Disconnected("x"), "released"),
    ],
)
def test_what_a_filter_does_not_want_is_finished_only_if_a_later_look_finds_it_unchanged(
    following: list[StoredEndpoint] | Exception, becomes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that were scheduled after a change was answered were finished by the former filter."""
    monkeypatch.setattr(watching, "_POLL_S", 3600.0)

    async def story() -> None:
        mesh, settled = Mesh(filtering("bill")), asyncio.Queue[str]()
        webhooks = Webhooks(mesh)  # type: ignore[arg-type]
        begin(webhooks)
        assert await mesh.opened.get() == "a"
        mesh.found = [following]
        mesh.messages.put_nowait(letter(settled))
        assert await settled.get() == becomes
        await webhooks.close()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_an_endpoint_of_a_topic_that_was_made_again_is_served_as_it_is_now() -> None:
    """Its version is that of the old one: messages went to the old URL for good."""

    async def story() -> None:
        mesh = Mesh([stored("a")])
        webhooks = Webhooks(mesh)  # type: ignore[arg-type]
        begin(webhooks)
        assert await mesh.opened.get() == "a"
        mesh.found = [[stored("a", url="https://example.org")]]
        assert (await mesh.opened.get(), await mesh.closed.get()) == ("a", "a")
        await webhooks.close()

    asyncio.run(asyncio.wait_for(story(), 10))


def test_two_topics_whose_endpoints_have_one_name_are_both_served() -> None:
    """Two brokers may store one name at once: one of the two topics was never sent."""

    async def story() -> None:
        mesh = Mesh([stored("a", name="bills"), stored("b", name="bills")])
        webhooks = Webhooks(mesh)  # type: ignore[arg-type]
        begin(webhooks)
        assert [await mesh.opened.get(), await mesh.opened.get()] == ["a", "b"]
        first, second = webhooks.counters("a", "bills"), webhooks.counters("b", "bills")
        assert first is not None
        assert second is not None
        first.last_failure_ms, first.last_failure = 60_000, "HTTP 500"
        assert (first is second, webhooks.failing()) == (False, {"a": ("bills", "HTTP 500")})
        mesh.found = [[stored("a", name="bills")]]  # one of them is deleted
        assert await mesh.closed.get() == "b"
        assert webhooks.counters("b", "bills") is None
        mesh.found = [[stored("a", name="invoices")]]
        assert [await mesh.opened.get(), await mesh.closed.get()] == ["a", "a"]
        assert webhooks.counters("a", "bills") is None
        await webhooks.close()
        assert mesh.opened.empty()

    asyncio.run(asyncio.wait_for(story(), 10))


def test_a_topic_that_was_made_again_is_served_though_a_request_of_the_former_one_is_under_way() -> None:
    async def story() -> None:
        mesh = Mesh([stored("a", timeout_ms=0)])
        webhooks, receiver = await sent_to_a_target(mesh)
        mesh.messages.put_nowait(TopicNotFound("a"))
        assert (await mesh.closed.get(), await mesh.opened.get()) == ("a", "a")
        receiver.answer.set_result(Answer(200, ""))
        assert await mesh.settled.get() == ("a", [("m0", 7)], "ack")
        await webhooks.close()

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize("following", [[stored("a", 2)], [stored("a", 2, "410")], []])
def test_a_request_under_way_ends_in_its_own_time_though_its_endpoint_changes(
    following: list[StoredEndpoint],
) -> None:
    async def story() -> None:
        mesh = Mesh([stored("a", timeout_ms=0)])
        webhooks, receiver = await sent_to_a_target(mesh)
        mesh.found = [following]
        assert await mesh.closed.get() == "a"
        receiver.answer.set_result(Answer(200, ""))
        assert await mesh.settled.get() == ("a", [("m0", 7)], "ack")
        await webhooks.close()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_gateway_that_ends_waits_for_requests_of_former_endpoints_no_longer_than_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "_DRAIN_S", 0.01)

    async def story() -> None:
        mesh = Mesh([stored("a", timeout_ms=0)])
        webhooks, _ = await sent_to_a_target(mesh)
        mesh.found = [[stored("a", 2)]]
        assert await mesh.closed.get() == "a"
        await webhooks.close()
        assert mesh.settled.empty()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_sealed_endpoints_are_served_by_who_has_the_key_and_others_say_so() -> None:
    async def story() -> None:
        keys = Keys([b64encode(bytes(32)).decode()])
        plain = stored("a")
        sealed = replace(plain, document=keys.sealed(plain.document))
        mesh = Mesh([sealed, stored("b")])
        webhooks = Webhooks(mesh)  # type: ignore[arg-type]
        begin(webhooks)
        assert await mesh.opened.get() == "b"
        counters = webhooks.counters("a", "of-a")
        assert counters is not None
        assert "and this gateway has none: give it the brokers' DUEQ_SECRETS_KEY" in counters.last_failure
        mesh.found = [sealed]
        with pytest.raises(SecretsSealed):
            await webhooks.test("of-a")
        await webhooks.close()
        mesh = Mesh([sealed])
        webhooks = Webhooks(mesh, keys=keys)  # type: ignore[arg-type]
        begin(webhooks)
        assert await mesh.opened.get() == "a"
        await webhooks.close()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_receiver_fails_until_it_takes_something() -> None:
    async def story() -> None:
        mesh = Mesh([stored("a"), stored("b")])
        webhooks = Webhooks(mesh)  # type: ignore[arg-type]
        begin(webhooks)
        await mesh.opened.get(), await mesh.opened.get()
        counters = webhooks.counters("a", "of-a")
        assert counters is not None
        assert webhooks.failing() == {}
        counters.last_failure_ms, counters.last_failure = 60_000, "HTTP 500"
        assert webhooks.failing() == {"a": ("of-a", "HTTP 500")}
        counters.last_success_ms = 55_000  # it fails now and then
        assert webhooks.failing() == {}
        await webhooks.close()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_errors_end_nothing() -> None:
    async def story() -> None:
        mesh = Mesh(
            [stored("a")], Disconnected("nobody there"), KeyError("a bug"), [stored("a"), stored("b")]
        )
        webhooks = Webhooks(mesh)  # type: ignore[arg-type]
        begin(webhooks)
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


class OnlyTested(Mesh):
    """A mesh whose one endpoint is found by its name, and not served."""

    async def follow(self, steps: Any, timeout: float | None) -> Any:
        steps.close()
        return stored("a") if timeout is None else []


def test_tests_of_a_receiver_that_hangs_leave_the_others_their_connections() -> None:
    """Tests took connections that nobody counted: with all of them, messages for other receivers failed."""

    async def story() -> None:
        webhooks, receiver, room = Webhooks(OnlyTested()), Receiver(), Room(8)  # type: ignore[arg-type]
        webhooks.start(receiver, room)  # type: ignore[arg-type]
        other = room.share(lambda: None)
        hanging = [asyncio.create_task(webhooks.test("of-a")) for _ in range(4)]
        for _ in hanging:
            await receiver.begun.get()
        with pytest.raises(Busy, match="connections"):
            await webhooks.test("of-a")
        assert (room.under_way, other.free) == (4, True)
        hanging.pop().cancel()  # whoever asked is gone
        receiver.answer.set_result(Answer(200, ""))
        assert {answer.status for answer in await asyncio.gather(*hanging)} == {200}
        assert room.under_way == 0
        assert (await webhooks.test("of-a")).status == 200
        await webhooks.close()

    asyncio.run(asyncio.wait_for(story(), 10))

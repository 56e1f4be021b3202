"""A repeated request has its first answer, though it would be refused by what the mesh has become since."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fastapi import FastAPI

from dueq import AsyncClient
from dueq.client import calls
from dueq.client.calls import Once
from dueq.errors import InvalidRequest
from dueq.gateway.app import create_app
from dueq.gateway.service import NewMessage, Service
from dueq.gateway.shared_bodies import text_of
from dueq.testing import AsyncMesh, amesh

PATH = "/v1/topics/orders/messages"
JSON, NDJSON = "application/json", "application/x-ndjson"


class Gateway:
    """The application, and the mesh behind it."""

    def __init__(self, mesh: AsyncMesh, client: AsyncClient) -> None:
        self.mesh, self.client = mesh, client
        self.service = Service(client)
        self.app: FastAPI = create_app(lambda: client)
        self.app.state.service = self.service

    async def post(self, body: Any, key: str = "", query: str = "", kind: str = JSON) -> tuple[int, Any]:
        """Send a request with an idempotency key; returns status and document."""
        answer: list[dict[str, Any]] = []
        headers = {"host": "localhost", "content-type": kind} | ({"idempotency-key": key} if key else {})
        scope = {
            "type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()], "http_version": "1.1",
        }  # fmt: skip
        data = body if isinstance(body, bytes) else json.dumps(body).encode()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            answer.append(message)

        await self.app(scope, receive, send)
        return answer[0]["status"], json.loads(b"".join(part["body"] for part in answer[1:]))


def run(story: Callable[[Gateway], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def told() -> None:
        with amesh() as mesh:
            client = mesh.client()
            await client.create_topic("orders", **{"partitions": 1, **settings})
            await story(Gateway(mesh, client))

    asyncio.run(asyncio.wait_for(told(), 60))


async def commit(gateway: Gateway) -> None:
    await gateway.service.end_job("orders", "j", commit=True)


async def cancel(gateway: Gateway) -> None:
    await gateway.client.cancel_job("orders", "j")


async def begin_openly(gateway: Gateway) -> None:
    """Somebody begins the job anew, and its messages are not hidden."""
    await gateway.service.end_job("orders", "j", commit=False)
    assert (await gateway.post({"payload": "y"}, query="job=j"))[0] == 201


async def later(gateway: Gateway) -> None:
    await gateway.mesh.advance(5)


async def shorter(gateway: Gateway) -> None:
    await gateway.client.update_topic("orders", payload_bytes_max=3)


async def nearer(gateway: Gateway) -> None:
    await gateway.client.update_topic("orders", horizon=timedelta(minutes=1))


CHANGES: dict[str, tuple[Callable[[Gateway], Awaitable[None]], str, dict[str, Any]]] = {
    "a committed job": (commit, "job=j&hidden_for=1h", {"delay": "1h"}),
    "a cancelled job": (cancel, "job=j", {"delay": "1h"}),
    "a job that was begun in another way": (begin_openly, "job=j&hidden_for=1h", {"delay": "1h"}),
    "a message that has expired": (later, "", {"expires": "<in 3 s>"}),
    "a topic of shorter payloads": (shorter, "", {"delay": "1h"}),
    "a topic with a nearer horizon": (nearer, "", {"delay": "1h"}),
}


def asked_of(gateway: Gateway, more: dict[str, Any], **own: Any) -> dict[str, Any]:
    due = {name: gateway.mesh.now_ms + 3000 if value == "<in 3 s>" else value for name, value in more.items()}
    return {"payload": "xxxx", **due, **own}


@pytest.mark.parametrize("change", CHANGES)
def test_a_repetition_is_answered_whatever_has_changed(change: str) -> None:
    """It was refused, and whoever took another key for it had the message twice."""
    changes, query, more = CHANGES[change]

    async def story(gateway: Gateway) -> None:
        asked = asked_of(gateway, more)
        status, first = await gateway.post(asked, "k", query)
        assert status == 201
        await changes(gateway)
        assert await gateway.post(asked, "k", query) == (201, first)
        status, problem = await gateway.post({**asked, "payload": "yyyy"}, "k", query)
        assert (status, problem["error"]) == (422, "RequestDiffers")
        assert (await gateway.post(asked, "other", query))[0] in (409, 413, 422)
        assert (await gateway.post(asked, "", query))[0] in (409, 413, 422)

    run(story)


@pytest.mark.parametrize("change", CHANGES)
def test_so_are_an_array_and_messages_that_lie_elsewhere(change: str) -> None:
    changes, query, more = CHANGES[change]

    async def story(gateway: Gateway) -> None:
        requests = {
            "array": [asked_of(gateway, more)] * 40,
            "group": asked_of(gateway, more, group="a.b"),
            "unique": asked_of(gateway, more, group="c", key="u"),
        }
        first = {key: await gateway.post(asked, key, query) for key, asked in requests.items()}
        assert {status for status, _ in first.values()} == {201}
        await changes(gateway)
        assert {key: await gateway.post(asked, key, query) for key, asked in requests.items()} == first

    run(story, kind="fair", partitions=4, keys="unique")


def test_of_an_array_each_message_that_was_scheduled_has_its_first_answer() -> None:
    async def story(gateway: Gateway) -> None:
        taken, *others = ({"payload": "xxxx", "key": f"u{number}", "delay": "1h"} for number in range(20))
        assert (await gateway.post(taken))[0] == 201
        asked = [*others, taken]
        status, first = await gateway.post(asked, "k")
        assert (status, first["messages"][-1]["problem"]["error"]) == (200, "KeyTaken")
        await shorter(gateway)
        status, again = await gateway.post(asked, "k")
        assert (status, again["messages"][:-1]) == (200, first["messages"][:-1])
        assert again["messages"][-1]["problem"]["error"] == "PayloadTooLarge"

    run(story, partitions=4, keys="unique")


def test_a_key_that_says_where_its_message_lies_is_looked_for_there() -> None:
    async def story(gateway: Gateway) -> None:
        requests = {
            f"k{number}": {"payload": "xxxx", "key": f"u{number}", "delay": "1h"} for number in range(9)
        }
        first = {key: await gateway.post(asked, key) for key, asked in requests.items()}
        await shorter(gateway)
        assert {key: await gateway.post(asked, key) for key, asked in requests.items()} == first

    run(story, partitions=4, keys="unique")


def test_a_repetition_is_answered_though_its_shared_body_is_gone() -> None:
    async def story(gateway: Gateway) -> None:
        body = await gateway.service.shared.put("orders", b"Everything must go.")
        asked = {"body": text_of(body), "delay": "1h"}
        _, first = await gateway.post(asked, "k")
        _, many = await gateway.post([asked] * 3, "many")
        await gateway.client.producer("orders").cancel_many(
            [first["id"], *(each["id"] for each in many["messages"])]
        )
        await gateway.service.shared.end("orders", body)
        await gateway.mesh.advance(1)
        assert await gateway.post(asked, "k") == (201, first)
        assert await gateway.post([asked] * 3, "many") == (201, many)
        assert (await gateway.post(asked, "other"))[0] == 404
        await gateway.service.shared.put("orders", b"Everything must go.")
        assert (await gateway.post(asked, "other"))[0] == 201, "what was refused has left no trace"

    run(story)


def test_a_request_whose_job_refuses_it_leaves_its_key_free() -> None:
    """The corrected request was refused as another one under the same key, for a day."""

    async def story(gateway: Gateway) -> None:
        assert (await gateway.post({"payload": "y"}, query="job=j"))[0] == 201
        requests: dict[str, Any] = {
            "plain": {"payload": "x"},
            "array": [{"payload": "x"}] * 2,
            "unique": {"payload": "x", "key": "u"},
        }
        for key, asked in requests.items():
            status, problem = await gateway.post(asked, key, "job=j&hidden_for=1h")
            assert (status, problem["error"]) == (422, "InvalidRequest")
            assert (await gateway.post(asked, key, "job=j"))[0] == 201

    run(story, keys="unique")


def test_lines_are_answered_one_by_one() -> None:
    async def story(gateway: Gateway) -> None:
        def lines(*keys: str) -> bytes:
            rows = ({"payload": "xxxx", "delay": "1h", "idempotency_key": key} for key in keys)
            return b"".join(json.dumps(each).encode() + b"\n" for each in rows)

        query = "job=j&hidden_for=1h"
        for key in "ac":
            assert (await gateway.post(lines(key), "", query, NDJSON))[1]["accepted"] == 1
        await commit(gateway)
        _, said = await gateway.post(lines("a", "b", "c"), "", query, NDJSON)
        assert (said["accepted"], said["failed"]) == (2, 1)
        assert [(each["line"], each["problem"]["error"]) for each in said["failures"]] == [(2, "JobEnded")]

        query = ""
        for key in "xz":
            assert (await gateway.post(lines(key), "", query, NDJSON))[1]["accepted"] == 1
        await shorter(gateway)
        sound = b'{"payload":"x","idempotency_key":"s"}\n'
        _, said = await gateway.post(lines("x", "y", "z") + sound, "", query, NDJSON)
        assert (said["accepted"], said["failed"]) == (3, 1)
        assert [(each["line"], each["problem"]["error"]) for each in said["failures"]] == [
            (2, "PayloadTooLarge")
        ]

    run(story)


@pytest.mark.parametrize(
    ("topic", "key", "group"),
    [
        ("orders", "\udc80", None),
        ("orders", None, "\udc80"),
        ("no name", None, None),
        ("x" * 60_000, None, None),
    ],
)
def test_what_no_message_can_have_is_refused_before_anything_is_asked(
    topic: str, key: str | None, group: str | None
) -> None:
    async def story(gateway: Gateway) -> None:
        with pytest.raises(InvalidRequest):
            await gateway.service.place(topic, [NewMessage(b"x", 0, key, group=group, once=Once(b"k", 1))])
        assert (await gateway.post({"payload": "x"}, "k2"))[0] == 201, "the client is as it was"

    run(story, kind="fair", keys="unique")


def test_many_wrong_lines_are_looked_up_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The faulty ones are found by halves."""
    looked, look = list[str](), calls.first_answer

    def counted(topic: str, once: Once, key: str | None, group: str | None) -> Any:
        looked.append(once.name.decode())
        return look(topic, once, key, group)

    monkeypatch.setattr(calls, "first_answer", counted)

    async def story(gateway: Gateway) -> None:
        rows = (
            {"payload": "x" * (number % 3), "delay": "1h", "idempotency_key": f"k{number}"}
            for number in range(90)
        )
        lines = b"".join(json.dumps(each).encode() + b"\n" for each in rows)
        _, said = await gateway.post(lines, "", "", NDJSON)
        assert (said["accepted"], said["failed"]) == (60, 30)
        assert sorted(looked) == sorted(f"k{number}" for number in range(2, 90, 3))

    run(story, payload_bytes_max=1)

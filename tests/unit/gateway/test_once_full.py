"""Idempotency keys that a partition has no room for: 429, and nothing is scheduled."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fastapi import FastAPI

from dueq import limits
from dueq.gateway.app import create_app
from dueq.gateway.service import Service
from dueq.testing import amesh
from dueq_chaos.sim.environment import scale


async def post(app: FastAPI, path: str, body: dict[str, Any], key: str) -> tuple[int, dict[str, str], Any]:
    """Send a request with an idempotency key to the application; returns status, headers and document."""
    answer: list[dict[str, Any]] = []
    headers = {"host": "localhost", "content-type": "application/json", "idempotency-key": key}
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()], "http_version": "1.1",
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(message: Any) -> None:
        answer.append(message)

    await app(scope, receive, send)
    start, *rest = answer
    said = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], said, json.loads(b"".join(part["body"] for part in rest))


def test_a_full_table_is_said_and_nothing_is_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMES_MAX", 2)

    async def run() -> None:
        with amesh() as mesh:
            client = mesh.client()
            await client.create_topic("orders", partitions=1)
            app = create_app(lambda: client)
            app.state.service = Service(client)
            path, asked = "/v1/topics/orders/messages", {"payload": "x", "delay": "1h"}
            assert [(await post(app, path, asked, f"order-{number}"))[0] for number in (1, 2)] == [201, 201]
            status, headers, problem = await post(app, path, asked, "order-3")
            assert (status, problem["error"], problem["retry"]) == (429, "Busy", True)
            assert "keeps 2 unique keys, and may keep 2" in problem["detail"]
            assert int(headers["retry-after"]) >= 1
            assert (await client.describe("orders")).scheduled == 2

    asyncio.run(run())


def test_a_full_table_answers_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMES_MAX", 1)

    async def run() -> None:
        with amesh() as mesh:
            client = mesh.client()
            await client.create_topic("orders", partitions=1)
            app = create_app(lambda: client)
            app.state.service = Service(client)
            path, asked = "/v1/topics/orders/messages", {"payload": "x", "delay": "1h"}
            first = await post(app, path, asked, "order-1")
            again = await post(app, path, asked, "order-1")
            assert first[0] == again[0] == 201
            assert again[2]["id"] == first[2]["id"]
            assert (await post(app, path, {"payload": "y", "delay": "1h"}, "order-1"))[0] == 422
            assert (await post(app, path, asked, "order-2"))[0] == 429
            assert (await client.describe("orders")).scheduled == 1

    asyncio.run(run())


def test_a_full_table_forgets_though_all_is_refused() -> None:
    async def run() -> None:
        with amesh() as mesh:
            client = mesh.client()
            await client.create_topic("orders", partitions=1)
            app = create_app(lambda: client)
            app.state.service = Service(client)
            path, asked = "/v1/topics/orders/messages", {"payload": "x", "delay": "10h"}
            assert (await post(app, path, asked, "order-1"))[0] == 201
            for _ in range(5):
                last = await post(app, path, asked, "order-2")
                if last[0] != 429:
                    break
                await mesh.advance(60)
            assert last[0] == 201

    with scale.scaled((("NAMES_MAX", 1), ("ONCE_MS", 60_000))):
        asyncio.run(run())

"""What a gateway makes as it begins, and the order in which it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq import limits
from dueq.gateway.app import create_app
from dueq.gateway.faces.cloud_tasks.dispatching import Dispatcher
from dueq.gateway.webhooks.room import Room
from dueq.gateway.webhooks.sending import Sender
from dueq.gateway.webhooks.watching import Webhooks
from dueq.testing import amesh


def test_endpoints_and_queues_share_the_connections_to_receivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each had as many as a gateway may have, and files were allowed for half of them."""
    told: list[Any] = []

    def note_made(kind: type, made: Callable[..., None]) -> None:
        def noted(self: Any, *given: Any) -> None:
            if kind is Sender or given == (limits.WEBHOOK_CONNECTIONS_MAX,):
                told.append((kind, "made"))
            made(self, *given)

        monkeypatch.setattr(kind, "__init__", noted)

    def note_closed(kind: Any, closed: Callable[..., Any]) -> None:
        async def noted(self: Any) -> None:
            await closed(self)
            told.append((kind, "closed"))

        monkeypatch.setattr(kind, "close", noted)

    for kind in (Sender, Room):
        note_made(kind, kind.__init__)
    for closing in (Sender, Webhooks, Dispatcher):
        note_closed(closing, closing.close)

    async def run() -> None:
        with amesh() as mesh:
            app = create_app(mesh.client)
            async with app.router.lifespan_context(app):
                assert sorted(told, key=str) == sorted([(Sender, "made"), (Room, "made")], key=str)
                told.clear()

    asyncio.run(asyncio.wait_for(run(), 60))
    *users, last = told
    assert sorted(users, key=str) == sorted([(Webhooks, "closed"), (Dispatcher, "closed")], key=str)
    assert last == (Sender, "closed")

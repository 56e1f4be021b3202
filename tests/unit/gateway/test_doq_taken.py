"""Messages of doq that are done as they are taken."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq import Outcome
from dueq.gateway.faces.doq.queue import LABEL, Queue
from dueq.gateway.faces.doq.rates import Rates
from dueq.gateway.faces.doq.verbs import Doq


class Mesh:
    """A queue with two messages; the lease of the first is over before that is done."""

    def __init__(self) -> None:
        self.client = self
        self.ready = ["1", "2"]
        self.acked = list[str]()

    async def describe(self, topic: str) -> Any:
        return SimpleNamespace(name=topic, labels={LABEL: Queue("mail", "fair", "round_robin").label()})

    async def pull(self, *_: Any) -> list[Any]:
        key = self.ready.pop(0)
        return [
            SimpleNamespace(
                id=f"m{key}", token=7, key=key, group="g", due=1, rank=0, payload=b"x", headers={}
            )
        ]

    async def settle(self, _topic: str, leases: list[tuple[str, int]], how: str) -> list[Outcome]:
        [(message_id, _)] = leases
        assert how == "ack"
        self.acked.append(message_id)
        return [Outcome.STALE if message_id == "m1" else Outcome.DONE]


def test_nobody_gets_a_message_that_could_not_be_done_before() -> None:
    """It comes again, and was to come once at most."""

    async def run() -> None:
        mesh: Any = Mesh()
        message = await Doq(mesh, Rates(lambda: 0)).dequeue("mail", ack=True)
        assert message.number == 2
        assert mesh.acked == ["m1", "m2"]

    asyncio.run(run())

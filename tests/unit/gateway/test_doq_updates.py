"""Changes of a queue of doq that fail half-way, and are made again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq.errors import NotLeader
from dueq.gateway.faces.doq.queue import LABEL, Queue, topic_of
from dueq.gateway.faces.doq.rates import Rates
from dueq.gateway.faces.doq.verbs import Doq

QUEUE = Queue("mail", "fair", "round_robin", max_unacked=5)


class Mesh:
    """A queue with three groups; the second change of a group finds no leader."""

    def __init__(self) -> None:
        self.client = self
        self.labels, self.limits = {LABEL: QUEUE.label()}, dict.fromkeys("abc", 5)
        self.set = list[str]()

    async def describe(self, topic: str) -> Any:
        assert topic == topic_of("mail")
        return SimpleNamespace(name=topic, labels=self.labels, settings_version=1)

    async def update_topic(self, _topic: str, *, labels: dict[str, str], if_version: int) -> None:
        self.labels = labels

    async def groups(self, _topic: str) -> AsyncIterator[Any]:
        for name, limit in list(self.limits.items()):
            yield SimpleNamespace(name=name, max_unacked=limit)

    async def set_group(self, _topic: str, group: str, *, max_unacked: int) -> None:
        self.set.append(group)
        if len(self.set) == 2:
            raise NotLeader("nobody leads")
        self.limits[group] = max_unacked


def test_a_limit_that_was_changed_by_half_is_changed_by_the_next_try() -> None:
    async def run() -> None:
        mesh: Any = Mesh()
        doq = Doq(mesh, Rates(lambda: 0))
        with pytest.raises(NotLeader):
            await doq.update("mail", "round_robin", 0, 0)
        await doq.update("mail", "round_robin", 0, 0)
        assert mesh.limits == dict.fromkeys("abc", 0)
        assert mesh.set == ["a", "b", "b", "c"], "what is as it should be is left alone"

    asyncio.run(run())

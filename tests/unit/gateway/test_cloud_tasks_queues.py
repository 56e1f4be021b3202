"""Changes of a queue by several gateways at once: none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.datastructures import QueryParams

from dueq.errors import TopicExists, VersionDiffers
from dueq.gateway.faces.cloud_tasks.names import QueueName
from dueq.gateway.faces.cloud_tasks.queue import LABEL, Configuration
from dueq.gateway.faces.cloud_tasks.queues import _create, change_queue, listed
from dueq.gateway.faces.cloud_tasks.status import Code, RpcError

QUEUE = QueueName("p", "l", "q")


class Mesh:
    """A topic that is a queue; `others` is called before each change that is asked for."""

    def __init__(self, others: Callable[[Mesh], None] = lambda mesh: None) -> None:
        self.client, self.others = self, others
        self.version, self.labels = 1, {LABEL: Configuration().label(), "owner": "mail"}
        self.limit = 0

    @property
    def configuration(self) -> Configuration:
        return Configuration.of(self._info())

    def _info(self) -> Any:
        return SimpleNamespace(name=QUEUE.topic, labels=self.labels, settings_version=self.version)

    def set(self, **changes: Any) -> None:
        """Another gateway changes the queue."""
        self.labels = {**self.labels, LABEL: replace(self.configuration, **changes).label()}
        self.version += 1

    async def describe(self, _topic: str) -> Any:
        return self._info()

    async def update_topic(self, _topic: str, *, labels: dict[str, str], if_version: int, **_: Any) -> None:
        self.others(self)
        if if_version != self.version:
            raise VersionDiffers("another has followed", self.version)
        self.labels, self.version = labels, self.version + 1

    async def set_group(self, _topic: str, _group: str, *, max_unacked: int) -> None:
        self.limit = max_unacked


def changed(mesh: Mesh, **changes: Any) -> None:
    asyncio.run(change_queue(mesh, QUEUE, lambda found: replace(found, **changes)))  # type: ignore[arg-type]


def test_a_change_is_made_on_top_of_what_another_gateway_has_set_meanwhile() -> None:
    overtaken = iter([True, True])
    mesh = Mesh(lambda mesh: mesh.set(rate=mesh.configuration.rate - 1) if next(overtaken, False) else None)
    changed(mesh, concurrent=7)
    assert (mesh.configuration.rate, mesh.configuration.concurrent, mesh.limit) == (498.0, 7, 7)
    assert mesh.labels["owner"] == "mail"


def test_the_limit_is_that_of_whoever_was_last() -> None:
    mesh = Mesh()
    limited = mesh.set_group

    async def overtaken(topic: str, group: str, *, max_unacked: int) -> None:
        if not mesh.limit:
            mesh.set(concurrent=9)
        await limited(topic, group, max_unacked=max_unacked)

    mesh.set_group = overtaken  # type: ignore[method-assign]
    changed(mesh, concurrent=7)
    assert (mesh.configuration.concurrent, mesh.limit) == (9, 9)


def test_who_is_overtaken_again_and_again_gives_up() -> None:
    mesh = Mesh(lambda mesh: mesh.set(rate=1.0))
    with pytest.raises(RpcError, match="is being changed by others") as refused:
        changed(mesh, concurrent=7)
    assert refused.value.code is Code.ABORTED


def test_who_makes_a_queue_again_that_was_made_by_half_sets_its_limit() -> None:
    """The mesh failed after the topic was made, and before its limit was set."""
    mesh: Any = Mesh()

    async def create_topic(*_: Any, **__: Any) -> None:
        raise TopicExists("there is one")

    mesh.create_topic = create_topic
    mesh.set(concurrent=3)
    with pytest.raises(RpcError, match="there is a queue") as refused:
        asyncio.run(_create(mesh, QUEUE, Configuration(concurrent=5)))
    assert refused.value.code is Code.ALREADY_EXISTS
    assert mesh.limit == 3


def test_a_queue_that_is_changed_as_it_is_made_is_limited_as_it_was_changed() -> None:
    mesh: Any = Mesh()

    async def create_topic(*_: Any, **__: Any) -> None:
        mesh.set(concurrent=3)  # another gateway follows at once

    mesh.create_topic = create_topic
    asyncio.run(_create(mesh, QUEUE, Configuration(concurrent=5)))
    assert mesh.limit == 3


def test_a_queue_whose_label_somebody_has_broken_hides_no_other() -> None:
    labels = {"a": "x", "b": Configuration().label(), "c": '{"rate":"abc","retry":{}}'}

    async def topics() -> list[Any]:
        return [
            SimpleNamespace(
                name=QueueName("p", "l", name).topic, labels={LABEL: text}, paused=False, paused_until=None
            )
            for name, text in labels.items()
        ]

    async def now_us() -> int:
        return 0

    service: Any = SimpleNamespace(client=SimpleNamespace(topics=topics), now_us=now_us)
    request: Any = SimpleNamespace(query_params=QueryParams(""))
    answer = asyncio.run(listed("p", "l", service, request))
    assert [each["name"] for each in answer["queues"]] == [str(QueueName("p", "l", "b"))]

"""Who settles a message of doq, or deletes it or a task, does not read its payload: the disk may be unable to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq import Outcome
from dueq.errors import Broken
from dueq.gateway.faces.cloud_tasks.tasks import deleted
from dueq.gateway.faces.doq.queue import LABEL, Queue
from dueq.gateway.faces.doq.rates import Rates
from dueq.gateway.faces.doq.verbs import Doq


class Mesh:
    """A queue with a message in flight whose payload its leader's disk cannot read."""

    def __init__(self) -> None:
        self.client = self
        self.settled = list[str]()

    async def describe(self, topic: str) -> Any:
        return SimpleNamespace(name=topic, labels={LABEL: Queue("mail", "fair", "round_robin").label()})

    async def get(
        self, _topic: str, _id: str = "", *, key: str = "5", payload: bool, linearizable: bool
    ) -> Any:
        if payload:
            raise Broken("the payload cannot be read")
        return SimpleNamespace(id=f"m{key}", token=7, state="leased", rank=0)

    async def settle(self, _topic: str, _leases: Any, how: str, **_: Any) -> list[Outcome]:
        self.settled.append(how)
        return [Outcome.DONE]


@pytest.mark.parametrize(
    ("how", "does"),
    [
        ("ack", lambda doq: doq.ack("mail", 5)),
        ("nack", lambda doq: doq.nack("mail", 5, 0, None)),
        ("extend", lambda doq: doq.touch("mail", 5)),
        ("ack", lambda doq: doq.remove("mail", 5)),
    ],
    ids=["ack", "nack", "touch", "delete"],
)
def test_a_message_of_doq_that_cannot_be_read_is_settled(
    how: str, does: Callable[[Doq], Coroutine[Any, Any, None]]
) -> None:
    mesh: Any = Mesh()
    asyncio.run(does(Doq(mesh, Rates(lambda: 0))))
    assert mesh.settled == [how]


def test_a_task_that_cannot_be_read_is_deleted() -> None:
    mesh: Any = Mesh()
    assert asyncio.run(deleted("p", "l", "q", "5", mesh)) == {}
    assert mesh.settled == ["ack"]

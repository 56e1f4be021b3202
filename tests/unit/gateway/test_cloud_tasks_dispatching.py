"""The tasks that a gateway sends: what it has in hand goes back, and an error ends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq import Outcome
from dueq.errors import NotLeader, TopicNotFound
from dueq.gateway.faces.cloud_tasks import dispatching
from dueq.gateway.faces.cloud_tasks.dispatching import Dispatcher, _Worker
from dueq.gateway.faces.cloud_tasks.names import QueueName
from dueq.gateway.faces.cloud_tasks.queue import LABEL, Configuration
from dueq.gateway.faces.cloud_tasks.task import Task
from dueq.gateway.faces.cloud_tasks.wire import HttpMethod
from dueq.gateway.webhooks.answers import Answer
from dueq.gateway.webhooks.room import Room

PAYLOAD = Task("https://example.com/pay", HttpMethod.POST, {}, b"", 15_000, 1).payload()


class Message:
    """A task in a consumer's hands."""

    payload, key, due, token = PAYLOAD, "", 1, 7

    def __init__(
        self, number: int, released: asyncio.Queue[str], attempt: int = 1, lease: float = 60.0
    ) -> None:
        self.id, self._released, self.attempt, self.lease = f"m{number}", released, attempt, lease

    async def release(self, *, delay: float = 0.0, wait: bool = False) -> None:
        self._released.put_nowait(self.id)

    async def ack(self) -> None:
        pass

    async def extend(self, seconds: float, *, wait: bool, timeout: float = 30.0) -> None:
        raise NotLeader("nobody leads")


class Stage:
    """A client whose consumer has two tasks, and a receiver that does not answer.

    Attributes:
        of_first: the attempt and the lease of the first task.
    """

    def __init__(self, *of_first: Any) -> None:
        self.released, self.sent = asyncio.Queue[str](), asyncio.Event()
        self.second, self.of_first = asyncio.Event(), of_first

    def consumer(self, *_: Any, **__: Any) -> Stage:
        return self

    async def __aiter__(self) -> AsyncIterator[Message]:
        yield Message(1, self.released, *self.of_first)
        self.second.set()
        yield Message(2, self.released)

    async def close(self) -> None:
        pass

    async def get(self, *_: Any) -> None:
        raise NotLeader("nobody leads")

    async def send(self, *_: Any) -> None:
        self.sent.set()
        await asyncio.Event().wait()


def test_a_task_that_waits_for_a_connection_goes_back_as_the_gateway_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatching, "_DRAIN_S", 0.01)

    async def run() -> None:
        stage: Any = Stage()
        worker = _Worker(
            stage, stage, QueueName("p", "l", "q"), Configuration(), lambda: 1_000_000, Room(2), None
        )
        await stage.sent.wait()
        await stage.second.wait()
        await worker.stop()
        assert stage.released.get_nowait() == "m2"
        assert stage.released.empty()

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("of_first", [(2,), (1, 20.0)], ids=["attempts", "lease"])
def test_a_task_that_is_not_sent_for_an_error_of_the_mesh_goes_back(
    monkeypatch: pytest.MonkeyPatch, of_first: tuple[Any, ...]
) -> None:
    monkeypatch.setattr(dispatching, "_DRAIN_S", 0.01)

    async def run() -> None:
        stage: Any = Stage(*of_first)
        worker = _Worker(
            stage, stage, QueueName("p", "l", "q"), Configuration(), lambda: 1_000_000, Room(8), None
        )
        assert await stage.released.get() == "m1"
        await stage.sent.wait()  # the second
        await worker.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_task_is_sent_with_a_lease_that_outlasts_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else another gateway sends it, too, while the receiver is at work on it."""
    monkeypatch.setattr(dispatching, "_DRAIN_S", 0.01)

    class Slow(Message):
        """The mesh takes long to extend its lease."""

        async def extend(self, seconds: float, *, wait: bool, timeout: float = 30.0) -> None:
            self.lease = seconds - timeout

    class Mesh(Stage):
        """Its consumer has such a task, and it takes long to say how that was sent before."""

        left: float

        async def __aiter__(self) -> AsyncIterator[Message]:
            self.message = Slow(1, self.released, 2, 30.0)
            yield self.message

        async def get(self, *_: Any) -> Any:
            self.message.lease -= 20.0
            return SimpleNamespace(reason="")

        async def send(self, *_: Any) -> None:
            self.left = self.message.lease
            await super().send()

    async def run() -> None:
        stage: Any = Mesh()
        worker = _Worker(
            stage, stage, QueueName("p", "l", "q"), Configuration(), lambda: 1_000_000, Room(8), None
        )
        await stage.sent.wait()
        await worker.stop()
        assert stage.left > 15.0

    asyncio.run(asyncio.wait_for(run(), 30))


def test_queues_are_looked_for_after_an_error_that_nobody_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatching, "_POLL_S", 0.0)

    async def run() -> None:
        asked, again = iter([True]), asyncio.Event()

        async def clock(*_: Any) -> None:
            if next(asked, False):
                raise RuntimeError
            again.set()
            await asyncio.Event().wait()

        connection = SimpleNamespace(clock=clock)
        service: Any = SimpleNamespace(client=SimpleNamespace(connection=connection))
        dispatcher = Dispatcher(service)
        dispatcher.start(SimpleNamespace(), Room(8))  # type: ignore[arg-type]
        await again.wait()
        await dispatcher.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_new_queue_is_served_while_the_last_requests_of_a_deleted_one_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatching, "_POLL_S", 0.0)
    monkeypatch.setattr(dispatching, "_DRAIN_S", 3600.0)

    class Served(Stage):
        """Notes which topics have consumers, and answers requests when it is told to."""

        def __init__(self) -> None:
            super().__init__()
            self.topics, self.answering = asyncio.Queue[str](), asyncio.Event()
            self.connection = self

        def consumer(self, topic: str, *_: Any, **__: Any) -> Stage:
            self.topics.put_nowait(topic)
            return super().consumer()

        async def clock(self, *_: Any) -> Any:
            return lambda: 1_000_000

        async def send(self, *_: Any) -> Any:
            self.sent.set()
            await self.answering.wait()
            return Answer(204, "")

    async def run() -> None:
        stage: Any = Served()
        dispatcher = Dispatcher(SimpleNamespace(client=stage))  # type: ignore[arg-type]
        labels = {LABEL: Configuration().label()}
        queues = ["old"]

        async def topics(_: Any) -> Any:
            await asyncio.sleep(0)
            return [SimpleNamespace(name=QueueName("p", "l", each).topic, labels=labels) for each in queues]

        dispatcher._catalogue = SimpleNamespace(topics=topics)  # type: ignore[assignment]
        dispatcher.start(stage, Room(8))
        assert await stage.topics.get() == "cloud-tasks.l.old.p"
        await stage.sent.wait()
        queues[:] = ["new"]
        assert await stage.topics.get() == "cloud-tasks.l.new.p"
        stage.answering.set()
        await dispatcher.close()

    asyncio.run(asyncio.wait_for(run(), 10))


def test_a_queue_that_is_made_again_at_once_is_served_while_the_last_requests_of_the_old_one_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatching, "_POLL_S", 0.0)
    monkeypatch.setattr(dispatching, "_DRAIN_S", 3600.0)

    class Again(Stage):
        """Its first consumer ends once the topic is gone, and its receiver answers when it is told to."""

        def __init__(self) -> None:
            super().__init__()
            self.opened, self.answering = asyncio.Queue[str](), asyncio.Event()
            self.connection = self

        def consumer(self, topic: str, *_: Any, **__: Any) -> Stage:
            self.opened.put_nowait(topic)
            return super().consumer()

        async def __aiter__(self) -> AsyncIterator[Message]:
            yield Message(1, self.released)
            await self.sent.wait()
            raise TopicNotFound("it was deleted")

        async def settle(self, *_: Any, **__: Any) -> list[Outcome]:
            return [Outcome.DONE]

        async def clock(self, *_: Any) -> Any:
            return lambda: 1_000_000

        async def send(self, *_: Any) -> Any:
            self.sent.set()
            await self.answering.wait()
            return Answer(204, "")

    async def run() -> None:
        stage: Any = Again()
        dispatcher = Dispatcher(SimpleNamespace(client=stage))  # type: ignore[arg-type]
        queue = SimpleNamespace(name="cloud-tasks.l.q.p", labels={LABEL: Configuration().label()})

        async def topics(_: Any) -> Any:
            await asyncio.sleep(0)
            return [queue]

        dispatcher._catalogue = SimpleNamespace(topics=topics)  # type: ignore[assignment]
        dispatcher.start(stage, Room(8))
        for _ in range(2):
            assert await stage.opened.get() == queue.name
        stage.answering.set()
        await dispatcher.close()

    asyncio.run(asyncio.wait_for(run(), 10))


@pytest.mark.parametrize(("status", "how"), [(204, "ack"), (500, "nack")])
def test_a_gateway_that_ends_takes_no_more_tasks_while_its_last_requests_end(status: int, how: str) -> None:
    """They would wait for it, though others are there to send them."""

    class Ending(Stage):
        """Notes when its consumer is closed, and what is settled after that."""

        def __init__(self) -> None:
            super().__init__()
            self.closed, self.answering = asyncio.Event(), asyncio.Event()
            self.settled = list[tuple[Any, ...]]()

        async def close(self) -> None:
            self.closed.set()

        async def settle(self, topic: str, leases: list[Any], how: str, **_: Any) -> list[Outcome]:
            self.settled.append((topic, leases, how))
            return [Outcome.DONE]

        async def send(self, *_: Any) -> Any:
            self.sent.set()
            await self.answering.wait()
            return Answer(status, "")

    async def run() -> None:
        stage: Any = Ending()
        queue = QueueName("p", "l", "q")
        worker = _Worker(stage, stage, queue, Configuration(), lambda: 1_000_000, Room(2), None)
        await stage.sent.wait()
        await stage.second.wait()
        stopping = asyncio.create_task(worker.stop())
        await stage.closed.wait()
        assert stage.released.get_nowait() == "m2"
        stage.answering.set()
        await stopping
        assert stage.settled == [(queue.topic, [("m1", 7)], how)]

    asyncio.run(asyncio.wait_for(run(), 10))


def test_a_task_has_no_header_that_a_receiver_could_take_for_one_of_the_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By CGI and WSGI names come in capitals and with underscores: `X_CloudTasks_TaskName` was believed."""
    monkeypatch.setattr(dispatching, "_DRAIN_S", 0.01)
    own = {
        "X_CloudTasks_TaskName": "evil",
        "x-cloudtasks_queuename": "evil",
        "User_Agent": "evil",
        "x_shop": "7",
    }
    own |= {"content_length": "9"}
    payload = Task("https://example.com/pay", HttpMethod.POST, own, b"", 15_000, 1).payload()
    monkeypatch.setattr(Message, "payload", payload)

    class Recording(Stage):
        """It keeps the headers that were sent."""

        headers: Any = None

        async def send(self, *given: Any) -> None:
            self.headers = given[2]
            await super().send()

    async def run() -> None:
        stage: Any = Recording()
        worker = _Worker(
            stage, stage, QueueName("p", "l", "q"), Configuration(), lambda: 1_000_000, Room(8), None
        )
        await stage.sent.wait()
        await worker.stop()
        assert stage.headers["x_shop"] == "7"
        seen = [name.upper().replace("-", "_") for name in stage.headers]
        assert len(seen) == len(set(seen))
        assert not {"evil", "9"} & set(stage.headers.values())

    asyncio.run(asyncio.wait_for(run(), 30))

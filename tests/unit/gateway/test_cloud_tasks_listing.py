"""Lists of tasks that are being sent: however long they are, all are told, page by page."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fastapi import Request

from dueq import limits
from dueq.gateway.answer_room import AnswerRoom
from dueq.gateway.bodies import BodyRoom
from dueq.gateway.faces.cloud_tasks.queue import LABEL, Configuration
from dueq.gateway.faces.cloud_tasks.task import HttpMethod, Task
from dueq.gateway.faces.cloud_tasks.tasks import listed

IDS = [f"01M85AQ7HP0000J0000000{number:02}00" for number in range(100)]
PAYLOAD = Task("https://example.com/pay", HttpMethod.POST, {}, b"", 15_000, 1).payload()


def sent(message_id: str) -> Any:
    """A task of the greatest length that is being sent, as far as lists look at it."""
    return SimpleNamespace(
        id=message_id, size=limits.CLOUD_TASKS_TASK_BYTES_MAX, payload=PAYLOAD, key="", due=1, waits_until=1, attempt=1,
        reason="",
    )  # fmt: skip


class Mesh:
    """A queue whose tasks are all being sent."""

    def __init__(self) -> None:
        self.client = self

    async def describe(self, _topic: str) -> Any:
        return SimpleNamespace(labels={LABEL: Configuration().label()}, partitions=0)

    async def leased(self, _topic: str, after: str | None, limit: int) -> list[Any]:
        return [sent(each) for each in IDS if each > (after or "")][:limit]

    async def get(self, _topic: str, message_id: str, payload: bool) -> Any:
        return sent(message_id)


@pytest.mark.parametrize("size", [7, 100, 1000])
def test_long_tasks_that_are_being_sent_are_listed_in_shorter_pages(size: int) -> None:
    """A hundred of them were more than all answers may hold: the list was refused, however often it was asked for."""

    async def page(token: str) -> dict[str, Any]:
        query = f"pageSize={size}&pageToken={token}".encode()
        request = Request(
            {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": query}
        )
        answer = AnswerRoom(BodyRoom(limits.GATEWAY_ANSWERS_BYTES_MAX, "answers are being sent"))
        return await listed("p", "l", "q", Mesh(), answer, request)  # type: ignore[arg-type]

    async def run() -> None:
        found, token = list[str](), ""
        while True:
            shown = await page(token)
            found += [each["name"].rpartition("/")[2] for each in shown["tasks"]]
            token = shown.get("nextPageToken", "")
            if not token:
                break
        assert found == IDS

    asyncio.run(asyncio.wait_for(run(), 30))

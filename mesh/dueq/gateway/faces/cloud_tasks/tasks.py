"""/v2/projects/P/locations/L/queues/Q/tasks"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

from fastapi import APIRouter, Request

from dueq import limits
from dueq.client.message_state import MessageState
from dueq.errors import InvalidRequest, KeyTaken, MessageLeased, MessageNotFound, TopicNotFound
from dueq.gateway import answer_room
from dueq.gateway.access import TheService
from dueq.gateway.answer_room import TheAnswer
from dueq.gateway.faces.cloud_tasks import names, task, wire
from dueq.gateway.faces.cloud_tasks.names import QueueName
from dueq.gateway.faces.cloud_tasks.queue import GROUP
from dueq.gateway.faces.cloud_tasks.queues import topic_of
from dueq.gateway.faces.cloud_tasks.status import Code, RpcError, RpcRoute
from dueq.gateway.faces.cloud_tasks.task import Attempts, Scheduled, Task, TaskDocument
from dueq.gateway.faces.cloud_tasks.wire import Part, Shape, View
from dueq.gateway.listing import Page, Wanted
from dueq.gateway.service import NewMessage, Service
from dueq_codecs.records import Outcome

router = APIRouter(
    prefix="/v2/projects/{project}/locations/{location}/queues/{queue_id}/tasks",
    route_class=RpcRoute,
    include_in_schema=False,
)

Document = dict[str, Any]
_PAGE_MAX: Final = 1000
_SENDING: Final = "sending:"
"""How the token of a page begins that goes on with tasks that are being sent, behind the id that follows."""
_SENDING_MAX: Final = 100
"""Most of them in one page: each is asked for by itself."""
_TRIES: Final = 5
"""How often a task is looked at that begins, or ends, to be sent as it is deleted."""


class NewTask(Part):
    """A task to be created."""

    parent: str = ""
    task: TaskDocument
    response_view: int | str | None = None


class Run(Part):
    """How the task is shown that is sent now."""

    name: str = ""
    response_view: int | str | None = None


@router.post("")
async def create(
    project: str, location: str, queue_id: str, service: TheService, request: Request
) -> Document:
    name = QueueName.checked(project, location, queue_id)
    asked = NewTask.model_validate(await wire.body_of(request))
    now_ms = await service.now_us() // 1000
    given = asked.task
    task_id = name.task_of(given.name) if given.name else ""
    made = Task.of(given, now_ms, request.app.state.issuer is not None)
    due_ms = max(wire.instant_ms(given.schedule_time, "scheduleTime") if given.schedule_time else 0, now_ms)
    message = NewMessage(made.payload(), due_ms, task_id or None, group=GROUP)
    try:
        (found,) = await service.schedule(name.topic, [message])
    except TopicNotFound:
        raise _no_queue(name) from None
    except KeyTaken:
        raise RpcError(
            Code.ALREADY_EXISTS, f"there is a task {name.task(task_id)}, or there was one in the last hour"
        ) from None
    known = Scheduled(found, task_id, due_ms)
    return task.document(name, known, made, Attempts(), _view(asked.response_view), Shape(request))


@router.get("")
async def listed(
    project: str, location: str, queue_id: str, service: TheService, answer: TheAnswer, request: Request
) -> Document:
    """First the tasks that are being sent, then those that wait: whose attempts are shown by `get` only.

    A page is a look of its own. A task that is sent, or fails, between two pages may be in both, or in neither.
    """
    name = QueueName.checked(project, location, queue_id)
    await topic_of(service, name)
    size, cursor = wire.page_of(request, _PAGE_MAX)
    view, shape = _view(request.query_params.get("responseView")), Shape(request)
    shown: list[Document] = []
    if not cursor or cursor.startswith(_SENDING):
        limit = min(size, _SENDING_MAX)
        leased = await service.client.leased(
            name.topic, after=cursor.removeprefix(_SENDING) or None, limit=limit
        )
        sending = _of_a_page(leased)
        for each in sending:
            with contextlib.suppress(MessageNotFound, RpcError):  # done meanwhile, or no task
                found = await service.client.get(name.topic, each.id, payload=True)
                answer.take(answer_room.shown(found.size))
                shown.append(_document(name, found, view, shape))
        more = len(leased) == limit or len(sending) < len(leased)
        cursor = f"{_SENDING}{sending[-1].id}" if more else ""
    document: Document = {"tasks": shown}
    if cursor.startswith(_SENDING):
        document["nextPageToken"] = cursor
        return document

    async def read(payloads: bool) -> Page:
        wanted = Wanted(name.topic, "waiting", None, None, "", payloads, size - len(shown))
        return await wanted.page(service.client, cursor)

    page = await answer.read(read, lambda page: page.size)
    for waiting in page.messages:
        assert waiting.payload is not None
        with contextlib.suppress(RpcError):  # somebody else has put it in: it hides no task
            shown.append(task.document(name, waiting, _task(waiting.payload), Attempts(), view, shape))
    if page.cursor is not None:
        document["nextPageToken"] = page.cursor
    return document


@router.get("/{task_id}")
async def shown(
    project: str,
    location: str,
    queue_id: str,
    task_id: str,
    service: TheService,
    answer: TheAnswer,
    request: Request,
) -> Document:
    name = QueueName.checked(project, location, queue_id)
    found = await answer.read(
        lambda payload: _state(service, name, task_id, payload), lambda found: found.size
    )
    return _shown(name, found, _view(request.query_params.get("responseView")), request)


@router.delete("/{task_id}")
async def deleted(project: str, location: str, queue_id: str, task_id: str, service: TheService) -> Document:
    """Delete a task. If it is being sent, that goes on, and it is not sent again."""
    name = QueueName.checked(project, location, queue_id)
    for _ in range(_TRIES):
        found = await _state(service, name, task_id, payload=False)
        if found.state == "leased":
            lease = found.id, found.token
            (outcome,) = await service.client.settle(name.topic, [lease], "ack")
            if outcome is Outcome.DONE:
                return {}
            continue  # another attempt, or the end of this one
        try:
            await service.client.producer(name.topic).cancel(found.id)
            return {}
        except MessageNotFound:
            raise _no_task(name, task_id) from None
        except MessageLeased:
            continue
    raise RpcError(Code.ABORTED, f"the task {name.task(task_id)} was being sent each time it was looked at")


@router.post("/{task_id}:run")
async def run(
    project: str, location: str, queue_id: str, task_id: str, service: TheService, request: Request
) -> Document:
    """Send it now, no matter what it waits for."""
    name = QueueName.checked(project, location, queue_id)
    asked = Run.model_validate(await wire.body_of(request))
    found = await _state(service, name, task_id)
    now_ms = await service.now_us() // 1000
    try:
        await service.client.trigger(name.topic, found.id)
    except MessageNotFound:
        raise _no_task(name, task_id) from None
    try:
        found = await _state(service, name, task_id)
    except RpcError as gone:
        if gone.code is not Code.NOT_FOUND:
            raise
        found = replace(found, due=now_ms, waits_until=now_ms)  # it was sent, and is done already
    return _shown(name, found, _view(asked.response_view), request)


def _of_a_page(found: list[MessageState]) -> list[MessageState]:
    """The first of these: no more bytes than a page of a list has, or one."""
    held = list(accumulate(each.size for each in found))
    return found[: max(sum(each <= limits.GATEWAY_LIST_BYTES_MAX for each in held), 1)]


async def _state(service: Service, name: QueueName, task_id: str, payload: bool = True) -> MessageState:
    """Return a task's message.

    Raises:
        RpcError: NOT_FOUND: there is no such task, or it is done, or it is dead.
    """
    names.checked_task(task_id)
    try:
        found = await _by_id(service, name, task_id, payload) or await service.client.get(
            name.topic, key=task_id, payload=payload, linearizable=True
        )
    except TopicNotFound:
        raise _no_queue(name) from None
    except MessageNotFound:
        raise _no_task(name, task_id) from None
    if found.state == "dead":
        raise _no_task(name, task_id)
    return found


async def _by_id(service: Service, name: QueueName, task_id: str, payload: bool) -> MessageState | None:
    """Return the message of a task without a name of its own; a name may look like an id, too."""
    try:
        return await service.client.get(name.topic, task_id, payload=payload, linearizable=True)
    except (MessageNotFound, InvalidRequest):
        return None


def _shown(name: QueueName, found: MessageState, view: View, request: Request) -> Document:
    return _document(name, found, view, Shape(request))


def _document(name: QueueName, found: MessageState, view: View, shape: Shape) -> Document:
    assert found.payload is not None
    return task.document(name, found, _task(found.payload), Attempts.of(found.reason), view, shape)


def _task(payload: bytes) -> Task:
    try:
        return Task.of_payload(payload)
    except ValueError as error:
        raise RpcError(
            Code.FAILED_PRECONDITION, f"somebody else has put a message into this queue: {error}"
        ) from None


def _view(value: int | str | None) -> View:
    found = wire.enum(View, value or View.BASIC, "responseView")
    return found or View.BASIC


def _no_queue(name: QueueName) -> RpcError:
    return RpcError(Code.NOT_FOUND, f"there is no queue {name}")


def _no_task(name: QueueName, task_id: str) -> RpcError:
    return RpcError(
        Code.NOT_FOUND, f"there is no task {name.task(task_id)}: it is done, deleted, or never was"
    )

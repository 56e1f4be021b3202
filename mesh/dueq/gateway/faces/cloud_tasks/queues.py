"""/v2/projects/P/locations/L/queues"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final

from fastapi import APIRouter, Request

from dueq import TopicInfo, limits
from dueq.errors import TopicExists, TopicNotFound, VersionDiffers
from dueq.gateway import pauses
from dueq.gateway.access import TheService
from dueq.gateway.faces.cloud_tasks import queue, wire
from dueq.gateway.faces.cloud_tasks.names import Location, QueueName
from dueq.gateway.faces.cloud_tasks.queue import GROUP, LABEL, Configuration, QueueDocument
from dueq.gateway.faces.cloud_tasks.status import Code, RpcError, RpcRoute
from dueq.gateway.faces.cloud_tasks.wire import Shape
from dueq.gateway.service import Service

router = APIRouter(prefix="/v2/projects/{project}/locations", route_class=RpcRoute, include_in_schema=False)

Document = dict[str, Any]
_PAGE_MAX: Final = 9800
REMEMBER_S: Final = 3600.0
"""How long the name of a task is not to be had again after the task is done or deleted."""
_TRIES: Final = 16
"""How often a change of a queue is made again that others have overtaken."""
_MISSING: Final = "there is no queue {}"


@router.post("/{location}/queues")
async def create(project: str, location: str, service: TheService, request: Request) -> Document:
    given = queue.checked(QueueDocument.model_validate(await wire.body_of(request)))
    name = QueueName.of(given.name)
    if name[:2] != Location.checked(project, location):
        raise RpcError(
            Code.INVALID_ARGUMENT, f"the queue {name} is not in projects/{project}/locations/{location}"
        )
    await _create(service, name, Configuration().changed(given, queue.ALL))
    return await _shown(service, name, request)


@router.get("/{location}/queues")
async def listed(project: str, location: str, service: TheService, request: Request) -> Document:
    place = Location.checked(project, location)
    if request.query_params.get("filter"):
        raise RpcError(Code.UNIMPLEMENTED, "filter is not implemented: leave it out")
    size, after = wire.page_of(request, _PAGE_MAX)
    shape, now_ms, found = Shape(request), await service.now_us() // 1000, []
    for name, info in sorted([each async for each in queues(service) if each[0][:2] == place]):
        with contextlib.suppress(
            RpcError
        ):  # somebody has written its label: no other queue is hidden by that
            as_it_is = pauses.as_of(now_ms, info)
            found += [(name, queue.document(name, as_it_is, shape))] if name.queue > after else []
    answer: Document = {"queues": [shown for _, shown in found[:size]]}
    if len(found) > size:
        answer["nextPageToken"] = found[size - 1][0].queue
    return answer


@router.get("/{location}/queues/{queue_id}")
async def shown(
    project: str, location: str, queue_id: str, service: TheService, request: Request
) -> Document:
    return await _shown(service, QueueName.checked(project, location, queue_id), request)


@router.patch("/{location}/queues/{queue_id}")
async def updated(
    project: str, location: str, queue_id: str, service: TheService, request: Request
) -> Document:
    """A queue that is not there is created."""
    name = QueueName.checked(project, location, queue_id)
    given = queue.checked(QueueDocument.model_validate(await wire.body_of(request)))
    if given.name and QueueName.of(given.name) != name:
        raise RpcError(Code.INVALID_ARGUMENT, f"the name of the queue is {name}, not {given.name!r:.200}")
    mask = request.query_params.get("updateMask") or request.query_params.get("update_mask") or ""
    paths = [_snake(path) for path in mask.split(",") if path] or queue.ALL
    try:
        await topic_of(service, name)
    except RpcError as missing:
        if missing.code is not Code.NOT_FOUND:
            raise
        await _create(service, name, Configuration().changed(given, paths))
    else:
        await change_queue(service, name, lambda found: found.changed(given, paths))
    return await _shown(service, name, request)


@router.delete("/{location}/queues/{queue_id}")
async def deleted(project: str, location: str, queue_id: str, service: TheService) -> Document:
    name = QueueName.checked(project, location, queue_id)
    await topic_of(service, name)
    await service.client.delete_topic(name.topic)
    return {}


@router.post("/{location}/queues/{queue_id}:pause")
async def paused(
    project: str, location: str, queue_id: str, service: TheService, request: Request
) -> Document:
    name = QueueName.checked(project, location, queue_id)
    await topic_of(service, name)
    await service.client.pause(name.topic)
    return await _shown(service, name, request)


@router.post("/{location}/queues/{queue_id}:resume")
async def resumed(
    project: str, location: str, queue_id: str, service: TheService, request: Request
) -> Document:
    name = QueueName.checked(project, location, queue_id)
    await topic_of(service, name)
    await service.client.resume(name.topic)
    return await _shown(service, name, request)


@router.post("/{location}/queues/{queue_id}:purge")
async def purged(
    project: str, location: str, queue_id: str, service: TheService, request: Request
) -> Document:
    """Tasks that are being sent are not taken back."""
    name = QueueName.checked(project, location, queue_id)
    Configuration.of(await topic_of(service, name))
    await service.client.purge(name.topic, wait=False)
    purged_ms = await service.now_us() // 1000
    await change_queue(service, name, lambda found: found.purged(max(purged_ms, found.purged_ms)))
    return await _shown(service, name, request)


@router.get("")
async def locations(project: str, service: TheService) -> Document:
    """Those in which there are queues."""
    found = {name[:2] async for name, _ in queues(service) if name.project == project}
    return {"locations": [_location(Location(*place)) for place in sorted(found)]}


@router.get("/{location}")
async def one_location(project: str, location: str) -> Document:
    """Any may have queues."""
    return _location(Location.checked(project, location))


@router.get("/{location}/cmekConfig")
@router.patch("/{location}/cmekConfig")
@router.post("/{location}/queues/{queue_id}:getIamPolicy")
@router.post("/{location}/queues/{queue_id}:setIamPolicy")
@router.post("/{location}/queues/{queue_id}:testIamPermissions")
@router.post("/{location}/queues/{queue_id}/tasks:batchCreate")
@router.post("/{location}/queues/{queue_id}/tasks:batchDelete")
@router.get("/{location}/operations/{operation}")
async def unimplemented(request: Request) -> Document:
    verb = request.url.path.rpartition("/")[2].rpartition(":")[2]
    raise RpcError(Code.UNIMPLEMENTED, f"{verb} is not implemented")


# ---------------------------------------------------------------- what others need too


async def queues(service: Service) -> AsyncIterator[tuple[QueueName, TopicInfo]]:
    """Yield the queues of the mesh."""
    for each in among(await service.client.topics()):
        yield each


def among(topics: Iterable[TopicInfo]) -> Iterator[tuple[QueueName, TopicInfo]]:
    """Yield the topics that are queues."""
    for info in topics:
        if LABEL in info.labels and (name := QueueName.of_topic(info.name)) is not None:
            yield name, info


async def topic_of(service: Service, name: QueueName) -> TopicInfo:
    """Return the topic that a queue is.

    Raises:
        RpcError: NOT_FOUND: there is none.
    """
    try:
        info = await service.client.describe(name.topic)
    except TopicNotFound:
        raise RpcError(Code.NOT_FOUND, _MISSING.format(name)) from None
    if LABEL not in info.labels:
        raise RpcError(Code.NOT_FOUND, _MISSING.format(name))
    return info


async def _create(service: Service, name: QueueName, wanted: Configuration) -> None:
    try:
        await service.client.create_topic(
            name.topic, "fair", 1, rate=wanted.per_second, burst=wanted.burst,
            payload_bytes_max=limits.CLOUD_TASKS_TASK_BYTES_MAX, keys="unique", remember=REMEMBER_S,
            labels={LABEL: wanted.label()},
        )  # fmt: skip
    except TopicExists:
        with contextlib.suppress(RpcError):  # whoever has made it may not have got as far as its limit
            await _limit(service, name, Configuration.of(await topic_of(service, name)).concurrent)
        raise RpcError(Code.ALREADY_EXISTS, f"there is a queue {name} already") from None
    await _limit(service, name, wanted.concurrent)


async def change_queue(
    service: Service, name: QueueName, edit: Callable[[Configuration], Configuration]
) -> None:
    """Change what a queue is set to, on top of what other gateways set meanwhile."""
    for _ in range(_TRIES):
        info = await topic_of(service, name)
        wanted = edit(Configuration.of(info))
        labels = {**info.labels, LABEL: wanted.label()}
        try:
            await service.client.update_topic(
                name.topic, rate=wanted.per_second, burst=wanted.burst, labels=labels,
                if_version=info.settings_version,
            )  # fmt: skip
        except VersionDiffers:
            continue
        await _limit(service, name, wanted.concurrent)
        return
    raise RpcError(
        Code.ABORTED, f"the queue {name} is being changed by others: {_TRIES} tries were overtaken"
    )


async def _limit(service: Service, name: QueueName, concurrent: int) -> None:
    """Limit the group of the tasks, as the last change has set the queue."""
    for _ in range(_TRIES):
        await service.client.set_group(name.topic, GROUP, max_unacked=concurrent)
        present = Configuration.of(await topic_of(service, name)).concurrent
        if present == concurrent:
            return
        concurrent = present


async def _shown(service: Service, name: QueueName, request: Request) -> Document:
    info = pauses.as_of(await service.now_us() // 1000, await topic_of(service, name))
    return queue.document(name, info, Shape(request))


def _location(place: Location) -> Document:
    return {"name": str(place), "locationId": place.location}


def _snake(path: str) -> str:
    return re.sub(r"([A-Z])", lambda found: "_" + found[1].lower(), path.removeprefix("queue."))

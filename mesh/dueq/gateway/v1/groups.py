"""/v1/topics/T/groups: weights and limits of the groups of a fair topic."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, status
from pydantic import Field

from dueq.gateway.access import TheService
from dueq.gateway.bodies import JsonRoute
from dueq.gateway.v1.model import Answer, Asked, Count, Cursor, Topic

router = APIRouter(prefix="/v1/topics/{topic}/groups", tags=["groups"], route_class=JsonRoute)


class GroupChanges(Asked):
    """Settings of a group; those left out stay as they are."""

    weight: int | None = Field(default=None, ge=1, description="Messages that it gets when it is its turn.")
    max_unacked: int | None = Field(
        default=None, ge=0, description="Messages with consumers at once; 0: no limit."
    )
    paused: bool | None = None
    rate: int | None = Field(default=None, ge=0, description="Messages a second at most; 0: no limit.")
    burst: int | None = Field(
        default=None, ge=0, description="How many of them at once; 0: as many as in a second."
    )


class Group(Answer):
    """A group."""

    name: str
    messages: int = Field(description="Its own that wait or that consumers have.")
    weight: int
    max_unacked: int
    paused: bool
    rate: int
    burst: int


class GroupList(Answer):
    """A page of groups, by name."""

    groups: list[Group]
    cursor: str | None


@router.get("", summary="List the groups that have messages or settings")
async def listed(topic: Topic, service: TheService, limit: Count = 100, cursor: Cursor = "") -> GroupList:
    found, more = await service.groups(topic, cursor, limit)
    shown = [
        Group(
            name=each.name, messages=each.messages, weight=each.weight, max_unacked=each.max_unacked,
            paused=each.paused, rate=each.rate, burst=each.burst,
        )
        for each in found
    ]  # fmt: skip
    return GroupList(groups=shown, cursor=shown[-1].name if more else None)


@router.put("/{group:text}", status_code=status.HTTP_204_NO_CONTENT, summary="Set something for a group")
async def changed(
    topic: Topic,
    group: Annotated[str, Path(description="Its name, such as acme.reports.")],
    asked: GroupChanges,
    service: TheService,
) -> None:
    await service.client.set_group(
        topic, group, weight=asked.weight, max_unacked=asked.max_unacked, paused=asked.paused, rate=asked.rate,
        burst=asked.burst,
    )  # fmt: skip

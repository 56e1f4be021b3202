"""/v1/topics/T/jobs: messages that were loaded together."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import Field

from dueq import JobInfo
from dueq.gateway import instants
from dueq.gateway.access import TheService
from dueq.gateway.bodies import JsonRoute
from dueq.gateway.v1.model import Answer, Said, Topic

router = APIRouter(prefix="/v1/topics/{topic}/jobs", tags=["jobs"], route_class=JsonRoute)


class JobAnswer(Answer):
    """A job."""

    name: str | None = Field(description="null in lists: the mesh knows keys only.")
    key: str
    state: Literal["open", "committed", "aborted", "cancelled"]
    until: Said | None = Field(description="By when a hidden job must be committed; null: it is not hidden.")
    messages: int = Field(description="That are left.")
    cleared: bool = Field(description="All were revealed, or withdrawn.")


class JobList(Answer):
    """All jobs of a topic that the mesh knows."""

    jobs: list[JobAnswer]


@router.get("", summary="List the jobs")
async def listed(topic: Topic, service: TheService) -> JobList:
    return JobList(jobs=[_answer(info) for info in await service.client.jobs(topic)])


@router.get("/{job:text}", summary="Show a job, by its name or key")
async def shown(topic: Topic, job: str, service: TheService) -> JobAnswer:
    return _answer(await service.job(topic, job))


@router.post("/{job:text}/commit", summary="Have all messages of a hidden job delivered")
async def committed(topic: Topic, job: str, service: TheService) -> JobAnswer:
    return _answer(await service.end_job(topic, job, commit=True))


@router.post("/{job:text}/abort", summary="Drop all messages of a hidden job")
async def aborted(topic: Topic, job: str, service: TheService) -> JobAnswer:
    return _answer(await service.end_job(topic, job, commit=False))


@router.post("/{job:text}/cancel", summary="Take back the messages that no consumer has")
async def cancelled(topic: Topic, job: str, service: TheService) -> JobAnswer:
    await service.client.cancel_job(topic, job)
    return _answer(await service.job(topic, job))


def _answer(info: JobInfo) -> JobAnswer:
    return JobAnswer(
        name=info.job_id or None, key=info.key, state=info.state, until=instants.text_or_none(info.until_ms),  # type: ignore[arg-type]
        messages=info.messages, cleared=info.cleared,
    )  # fmt: skip

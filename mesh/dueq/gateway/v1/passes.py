"""/v1/topics/T/where, dead and passes: work on all messages of a topic that match a filter."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, status
from fastapi.responses import JSONResponse
from pydantic import Field

from dueq import Filter, limits
from dueq.client.aio.passes import AsyncPass
from dueq.client.passes import Progress
from dueq.gateway import instants
from dueq.gateway.access import TheService
from dueq.gateway.bodies import JsonRoute
from dueq.gateway.problems import Unfit
from dueq.gateway.service import Service
from dueq.gateway.v1.model import Answer, Asked, Duration, Instant, Topic
from dueq.gateway.v1.preconditions import Unseen

router = APIRouter(prefix="/v1/topics/{topic}", tags=["many messages"], route_class=JsonRoute)

State = Literal["waiting", "dead"]
PassName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=limits.PASS_NAME_MAX,
        description="Of the pass; the same request under the same name goes on with it. A new one, if left out.",
    ),
]


class AskedFilter(Asked):
    """Messages that are all of these; what is left out does not matter."""

    job: str | None = Field(default=None, description="Of this job: its key, 32 hex digits.")
    key_prefix: str | None = Field(default=None, description="Whose keys begin so; at most 255 bytes.")
    group: str | None = Field(default=None, description="Of this group, or of one below it.")
    due_from: Instant | None = Field(default=None, description="Due at this instant or later.")
    due_until: Instant | None = Field(default=None, description="Due before this instant.")
    state: State | None = Field(
        default=None, description="dead, if dead messages are redriven or discarded, else waiting."
    )


class Where(Asked):
    """An action on all messages that match a filter."""

    filter: AskedFilter = Field(default_factory=AskedFilter)
    do: Literal["count", "cancel", "shift", "move", "change", "redrive", "discard"]
    dry_run: bool = Field(default=False, description="Count only.")
    name: PassName | None = None
    by: int | float | str | None = Field(
        default=None, description="Of shift: how much later, such as `90s`; `-90s`: sooner."
    )
    due: Instant | None = Field(default=None, description="Of move: when.")
    delay: Duration | None = Field(default=None, description="Of move: how long from now.")
    spread: Duration | None = Field(
        default=None, description="Of move and redrive: evenly over an interval of this length."
    )
    rank: int | None = Field(default=None, ge=0, le=limits.RANK_MAX, description="Of change: the new rank.")


class Matched(Answer):
    """How many messages match, about: some come and go meanwhile."""

    matched: int


class PassAnswer(Answer):
    """Work that the mesh does on all messages of a topic that match: how far it is."""

    name: str = Field(
        description="What to ask for how far it is; of a purge of all, the names of two passes, with a space between."
    )
    done: int
    skipped: dict[str, int] = Field(description="Messages that were left alone, by the reason.")
    left: int = Field(description="At most this many are still to be looked at.")
    ended: bool


class Purge(Asked):
    """Which messages to finish."""

    state: State | Literal["all"] = "waiting"


class Redrive(Asked):
    """Which dead messages wait again, and when."""

    filter: AskedFilter = Field(default_factory=AskedFilter)
    spread: Duration | None = Field(default=None, description="Evenly over this long from now on; at once.")
    name: PassName | None = None


class Discard(Asked):
    """Which dead messages go."""

    filter: AskedFilter = Field(default_factory=AskedFilter)
    name: PassName | None = None


@router.post(
    "/where", summary="Count, cancel, shift, move, change, redrive or discard all messages that match",
    status_code=status.HTTP_202_ACCEPTED, response_model=PassAnswer,
    responses={200: {"model": Matched, "description": "They were only counted."}},
)  # fmt: skip
async def where(topic: Topic, asked: Where, service: TheService) -> Any:
    """The mesh does it after the answer, once for each message, whoever leads; `passes` says how far it is.

    It is about the messages that were scheduled before, and that nobody moves or changes meanwhile. Those that
    consumers have are left as they are, and counted.
    """
    _refuse_what_is_not_of(asked)
    now_us = await service.now_us()
    wanted = filter_of(asked.filter, now_us, "dead" if asked.do in ("redrive", "discard") else None)
    if asked.dry_run or asked.do == "count":
        matched = await service.client.count_where(topic, wanted)
        return JSONResponse(Matched(matched=matched).model_dump(), status.HTTP_200_OK)
    return await _progress(service, await _begun(topic, asked, wanted, now_us, service))


@router.post(
    "/purge", status_code=status.HTTP_202_ACCEPTED, dependencies=[Unseen], summary="Finish all messages in a state",
)  # fmt: skip
async def purged(topic: Topic, service: TheService, asked: Purge | None = None) -> PassAnswer:
    return await _progress(service, await service.client.purge(topic, (asked or Purge()).state, wait=False))


@router.post("/dead/redrive", status_code=status.HTTP_202_ACCEPTED, summary="Let dead messages wait again")
async def redriven(topic: Topic, service: TheService, asked: Redrive | None = None) -> PassAnswer:
    """As if they had never been tried; all of them, unless a filter says which."""
    asked = asked or Redrive()
    wanted = filter_of(asked.filter, await service.now_us(), "dead")
    spread = instants.duration(asked.spread or 0, "body.spread")
    return await _progress(
        service, await service.client.redrive_where(topic, wanted, spread=spread, name=asked.name)
    )


@router.post("/dead/discard", status_code=status.HTTP_202_ACCEPTED, summary="Discard dead messages")
async def discarded(topic: Topic, service: TheService, asked: Discard | None = None) -> PassAnswer:
    """All of them, unless a filter says which."""
    asked = asked or Discard()
    wanted = filter_of(asked.filter, await service.now_us(), "dead")
    return await _progress(service, await service.client.discard_where(topic, wanted, name=asked.name))


@router.get("/passes/{name:text}", summary="How far work on many messages is")
async def progress(topic: Topic, name: Annotated[str, Path()], service: TheService) -> PassAnswer:
    return _answer(name, await service.progress(topic, name))


@router.delete("/passes/{name:text}", summary="Stop work on many messages; what it has done stays done")
async def stopped(topic: Topic, name: Annotated[str, Path()], service: TheService) -> PassAnswer:
    return _answer(name, await service.stop_pass(topic, name))


# ---------------------------------------------------------------- what was asked


def filter_of(asked: AskedFilter, now_us: int, state: State | None) -> Filter:
    """Return the filter.

    Args:
        asked: as it was sent.
        now_us: mesh time, Unix µs.
        state: the only one that it may have, and has unless it says so; None: any.

    Raises:
        Unfit: it is of another state.
        InvalidRequest: a value is outside its limits.
    """
    if state is not None and asked.state not in (None, state):
        raise Unfit(
            f"body.filter.state is {state!r} here, not {asked.state!r}",
            asked.state,
            state,
            "body.filter.state",
        )

    def instant(value: int | str | None, name: str) -> int | None:
        return None if value is None else instants.instant_ms(value, now_us, f"body.filter.{name}")

    return Filter(
        job=asked.job,
        key_prefix=asked.key_prefix,
        group=asked.group,
        due_from=instant(asked.due_from, "due_from"),
        due_until=instant(asked.due_until, "due_until"),
        state=asked.state or state or "waiting",
    )


_NEEDS: dict[str, tuple[str, ...]] = {
    "shift": ("by",),
    "move": ("due", "delay", "spread"),
    "change": ("rank",),
    "redrive": ("spread",),
}
"""The fields that go with the action."""


def _refuse_what_is_not_of(asked: Where) -> None:
    """A field that has no effect must not be ignored: it may have been meant for something else."""
    for name in ("by", "due", "delay", "spread", "rank"):
        value = getattr(asked, name)
        if value is not None and name not in _NEEDS.get(asked.do, ()):
            raise Unfit(f"body.{name} does not go with {asked.do}", value, None, f"body.{name}")
    if asked.do == "shift" and asked.by is None:
        raise Unfit("body.by says by how much", None, None, "body.by")
    if asked.do == "move" and asked.due is None and asked.delay is None:
        raise Unfit("body.due or body.delay says when", None, None, "body.due")
    if asked.do == "change" and asked.rank is None:
        raise Unfit("body.rank says which", None, None, "body.rank")


async def _begun(topic: str, asked: Where, wanted: Filter, now_us: int, service: Service) -> AsyncPass:
    client, name = service.client, asked.name
    spread = instants.duration(asked.spread or 0, "body.spread")
    if asked.do == "shift":
        assert asked.by is not None
        by = instants.difference(asked.by, "body.by")
        return await client.shift_where(topic, wanted, by=by, name=name)
    if asked.do == "move":
        to_ms = instants.chosen_ms(asked.due, asked.delay, now_us, "body")
        return await client.move_where(topic, wanted, to=to_ms, spread=spread, name=name)
    if asked.do == "change":
        assert asked.rank is not None
        return await client.change_where(topic, wanted, rank=asked.rank, name=name)
    if asked.do == "redrive":
        return await client.redrive_where(topic, wanted, spread=spread, name=name)
    if asked.do == "discard":
        return await client.discard_where(topic, wanted, name=name)
    return await client.cancel_where(topic, wanted, name=name)


async def _progress(service: Service, begun: AsyncPass) -> PassAnswer:
    name = " ".join(begun.names)
    return _answer(name, await service.progress(begun.topic, name))


def _answer(name: str, found: Progress) -> PassAnswer:
    return PassAnswer(
        name=name, done=found.done, skipped=dict(found.skipped), left=found.left, ended=found.ended
    )

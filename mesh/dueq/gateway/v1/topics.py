"""/v1/topics"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Response, status
from pydantic import Field

from dueq import Backoff, TopicInfo
from dueq.client import topic_changes
from dueq.gateway import instants, pauses
from dueq.gateway.access import TheService
from dueq.gateway.bodies import JsonRoute
from dueq.gateway.problems import Unfit
from dueq.gateway.service import Service
from dueq.gateway.v1.model import Answer, Asked, Count, Cursor, Duration, Instant, Said, Topic
from dueq.gateway.v1.preconditions import Unseen, version_seen
from dueq_codecs.backoff import DOUBLINGS_MAX, FACTOR_MAX

router = APIRouter(prefix="/v1/topics", tags=["topics"], route_class=JsonRoute)

Kind = Literal["timeline", "priority", "fair"]


class AskedBackoff(Asked):
    """Delays that grow from attempt to attempt."""

    first: Duration = Field(default=1.0, description="The delay after the first attempt.")
    factor: float = Field(
        default=2.0, ge=1, le=FACTOR_MAX, description="How much longer each further delay is."
    )
    longest: Duration = Field(default=3600.0, description="No delay is longer.")
    jitter: float = Field(
        default=0.1, ge=0, le=1, description="Up to this part of a delay is added or taken away."
    )
    doublings: int | None = Field(
        default=None,
        ge=0,
        le=DOUBLINGS_MAX,
        description="After this many steps it grows by equal steps; never.",
    )


class Settings(Asked):
    """The settings of a topic that can be changed at any time."""

    payload_bytes_max: int | None = Field(default=None, ge=1, description="The longest payload; 64 MiB.")
    horizon: Duration | None = Field(
        default=None, description="How far ahead a message may be due; 0: no cap."
    )
    rate: float | None = Field(default=None, ge=0, description="Messages a second at most; 0: no limit.")
    burst: int | None = Field(
        default=None, ge=0, description="How many of them at once; 0: as many as in a second."
    )
    max_attempts: int | None = Field(
        default=None, ge=0, description="Deliveries after which a message is dead; 0: as often as it takes."
    )
    backoff: AskedBackoff | None = Field(
        default=None, description="How long a message waits that is given back without a delay."
    )
    expired: Literal["finish", "dead"] | None = Field(
        default=None, description="What becomes of a message that is not delivered in time."
    )
    dead_retention: Duration | None = Field(
        default=None, description="How long a dead message stays; 14 days."
    )
    remember: Duration | None = Field(
        default=None,
        description="Of a topic with unique keys: how long a key stays taken when its message is finished; 0.",
    )
    labels: dict[str, str] | None = Field(default=None, description="What is to be said of the topic.")


class NewTopic(Settings):
    """A topic to be created. The mesh chooses the settings that are left out."""

    name: str = Field(description="1–255 of `A-Z a-z 0-9 . _ -`.", examples=["mail"])
    kind: Kind = Field(default="timeline", description="Which of the messages that are due goes first.")
    partitions: int = Field(default=1, ge=1, description="They work in parallel.")
    replicas: int | None = Field(
        default=None, ge=1, description="Copies of each; three, or as many as brokers."
    )
    min_isr: int | None = Field(
        default=None, ge=1, description="Replicas that must hold a record before it counts."
    )
    keys: Literal["free", "unique"] = Field(
        default="free", description="unique: a key names at most one message that is not finished."
    )
    exist_ok: bool = Field(default=False, description="A topic of this name may exist already.")


class TopicChanges(Settings):
    """Changes of a topic; what is left out stays as it is."""

    partitions: int | None = Field(default=None, ge=1, description="Never fewer than there are.")


class BackoffAnswer(Answer):
    """Delays that grow from attempt to attempt."""

    first_seconds: float
    factor: float
    longest_seconds: float
    jitter: float
    doublings: int | None


class Partition(Answer):
    """One partition of a topic."""

    uid: int
    index: int
    leader: str | None
    epoch: int
    serving: bool
    replicas: list[str]
    isr: list[str]
    scheduled: int | None
    ready: int | None
    leased: int | None


class TopicAnswer(Answer):
    """A topic. Counts are None where no leader answered, and in lists."""

    name: str
    kind: Kind
    partitions: int
    replicas: int
    min_isr: int
    payload_bytes_max: int
    horizon_seconds: float | None
    paused: bool
    paused_until: Said | None
    rate: float
    burst: int
    max_attempts: int
    backoff: BackoffAnswer | None
    expired: Literal["finish", "dead"]
    dead_retention_seconds: float
    keys: Literal["free", "unique"]
    remember_seconds: float
    labels: dict[str, str]
    settings_version: int
    scheduled: int | None = Field(description="Messages that are not due yet.")
    ready: int | None = Field(description="Messages that are due and wait.")
    leased: int | None = Field(description="Messages with consumers.")
    dead: int | None = Field(description="Messages that are not tried again.")
    placement: list[Partition] | None = Field(description="Left out of lists.")


class TopicList(Answer):
    """A page of topics, by name."""

    topics: list[TopicAnswer]
    cursor: str | None


class Pause(Asked):
    """How long to pause."""

    until: Instant | None = Field(
        default=None, description="When the pause ends by itself; never, if left out."
    )


@router.post("", status_code=status.HTTP_201_CREATED, summary="Create a topic")
async def create(asked: NewTopic, service: TheService, response: Response) -> TopicAnswer:
    await service.client.create_topic(
        asked.name, asked.kind, asked.partitions, asked.replicas, min_isr=asked.min_isr, keys=asked.keys,
        exist_ok=asked.exist_ok,
        **_settings(asked),
    )  # fmt: skip
    response.headers["location"] = f"/v1/topics/{asked.name}"
    return await _described(service, asked.name)


@router.get("", summary="List the topics, by name")
async def listed(service: TheService, limit: Count = 1000, cursor: Cursor = "") -> TopicList:
    found = [info for info in await service.client.topics() if info.name > cursor]
    now_ms = await service.now_us() // 1000
    shown = [answer(pauses.as_of(now_ms, info), placement=False) for info in found[:limit]]
    return TopicList(topics=shown, cursor=shown[-1].name if len(found) > limit else None)


async def _seen(
    topic: Topic,
    if_match: Annotated[
        str | None,
        Header(
            description="The ETag that the topic must have, else it is left as it is (412).",
            examples=['"mail.3"'],
        ),
    ] = None,
) -> int | None:
    """Return the version that `If-Match` names; None: any."""
    return version_seen(if_match, topic, "topic")


Seen = Annotated[int | None, Depends(_seen)]


@router.get("/{topic}", summary="Show a topic, with counts")
async def described(topic: Topic, service: TheService, response: Response) -> TopicAnswer:
    """The ETag is its name and the version of its settings."""
    return _tagged(await _described(service, topic), response)


@router.patch("/{topic}", summary="Change a topic")
async def changed(
    topic: Topic,
    asked: TopicChanges,
    service: TheService,
    response: Response,
    version: Seen,
) -> TopicAnswer:
    """The ETag is its name and the version of its settings."""
    await service.client.update_topic(
        topic, partitions=asked.partitions, if_version=version, **_settings(asked)
    )
    return _tagged(await _described(service, topic), response)


@router.delete(
    "/{topic}", status_code=status.HTTP_204_NO_CONTENT, summary="Delete a topic and its messages",
    dependencies=[Unseen],
)  # fmt: skip
async def deleted(topic: Topic, service: TheService) -> None:
    await service.client.delete_topic(topic)


@router.post("/{topic}/pause", summary="Deliver nothing more until it is resumed")
async def paused(
    topic: Topic, service: TheService, response: Response, version: Seen, asked: Pause | None = None
) -> TopicAnswer:
    """The ETag is its name and the version of its settings, of which a pause is one."""
    until = 0
    if asked is not None and asked.until is not None:
        # 0 is no end.
        until = max(instants.instant_ms(asked.until, await service.now_us(), "body.until"), 1)
    await _change(service, topic, topic_changes.paused(until), version)
    return _tagged(await _described(service, topic), response)


@router.post("/{topic}/resume", summary="End a pause")
async def resumed(topic: Topic, service: TheService, response: Response, version: Seen) -> TopicAnswer:
    """The ETag is its name and the version of its settings."""
    await _change(service, topic, topic_changes.RESUMED, version)
    return _tagged(await _described(service, topic), response)


async def _change(service: Service, topic: str, changes: dict[str, Any], version: int | None) -> None:
    await service.client.connection.follow(topic_changes.change(topic, changes, if_version=version), None)


class Second(Answer):
    """Messages that fall due within a step."""

    at: Said
    messages: int


class Forecast(Answer):
    """Counts of messages that fall due, step by step; empty steps are left out."""

    seconds: list[Second]


@router.get("/{topic}/forecast", summary="What falls due, and when")
async def forecast(
    topic: Topic,
    service: TheService,
    from_: Annotated[str, Query(alias="from", description="From this instant on; now.")] = "0s",
    until: Annotated[str, Query(description="Until this instant, at most an hour after the first.")] = "60s",
    step: Annotated[str, Query(description="Length of a step: whole seconds.")] = "1s",
) -> Forecast:
    """Within an hour from now, later counts may be known by the hour only, and are spread evenly over it.

    Further ahead, messages are counted one by one, which takes longer where there are many.
    """
    now_us = await service.now_us()
    begin = instants.instant_ms(from_, now_us, "query.from")
    end = instants.instant_ms(until, now_us, "query.until")
    step_ms = int(instants.seconds(step, "query.step") * 1000)
    if step_ms < 1000 or step_ms % 1000:
        raise Unfit(f"query.step is a whole number of seconds, not {step!r:.80}", step, 1, "query.step")
    counts = await service.forecast(topic, begin, end, step_ms)
    return Forecast(seconds=[Second(at=instants.text(at), messages=count) for at, count in counts])


async def _described(service: Service, topic: str) -> TopicAnswer:
    info = await service.client.describe(topic)
    return answer(pauses.as_of(await service.now_us() // 1000, info))


def _tagged(found: TopicAnswer, response: Response) -> TopicAnswer:
    response.headers["etag"] = f'"{found.name}.{found.settings_version}"'
    return found


def answer(info: TopicInfo, placement: bool = True) -> TopicAnswer:
    """Return a topic as answers have it."""
    return TopicAnswer(
        name=info.name,
        kind=info.kind,  # type: ignore[arg-type]
        partitions=info.partitions,
        replicas=info.replicas,
        min_isr=info.min_isr,
        payload_bytes_max=info.payload_bytes_max,
        horizon_seconds=info.horizon.total_seconds() if info.horizon is not None else None,
        paused=info.paused,
        paused_until=instants.of_time(info.paused_until) if info.paused_until else None,
        rate=info.rate,
        burst=info.burst,
        max_attempts=info.max_attempts,
        backoff=_backoff(info.backoff),
        expired=info.expired,  # type: ignore[arg-type]
        dead_retention_seconds=info.dead_retention.total_seconds(),
        keys=info.keys,  # type: ignore[arg-type]
        remember_seconds=info.remember.total_seconds(),
        labels=dict(info.labels),
        settings_version=info.settings_version,
        scheduled=info.scheduled,
        ready=info.ready,
        leased=info.leased,
        dead=info.dead,
        placement=[_partition(each) for each in info.placement] if placement else None,
    )


def _settings(asked: Settings) -> dict[str, Any]:
    """Return the settings that a request names, as the SDK takes them."""
    found = asked.model_dump(
        include={"payload_bytes_max", "rate", "burst", "max_attempts", "expired", "labels"}, exclude_none=True
    )
    for name in ("horizon", "dead_retention", "remember"):
        value = getattr(asked, name)
        if value is not None:
            found[name] = instants.duration(value, f"body.{name}")
    if asked.backoff is not None:
        said = asked.backoff
        found["backoff"] = Backoff(
            instants.duration(said.first, "body.backoff.first"),
            said.factor,
            instants.duration(said.longest, "body.backoff.longest"),
            said.jitter,
            said.doublings,
        )
    return found


def _backoff(found: Backoff | None) -> BackoffAnswer | None:
    if found is None:
        return None
    document = found.document()
    return BackoffAnswer(
        first_seconds=document["first_ms"] / 1000,
        factor=found.factor,
        longest_seconds=document["longest_ms"] / 1000,
        jitter=found.jitter,
        doublings=found.doublings,
    )


def _partition(info: Any) -> Partition:
    return Partition(
        uid=info.uid, index=info.index, leader=info.leader or None, epoch=info.epoch, serving=info.serving,
        replicas=list(info.replicas), isr=list(info.isr), scheduled=info.scheduled, ready=info.ready,
        leased=info.leased,
    )  # fmt: skip

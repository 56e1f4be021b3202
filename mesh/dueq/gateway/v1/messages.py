"""/v1/topics/T/messages: one, an array, NDJSON or raw bytes in; pages out; move, change, cancel."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response, status
from fastapi.responses import JSONResponse
from pydantic import Field, TypeAdapter

from dueq import limits
from dueq.gateway import instants
from dueq.gateway.access import TheService
from dueq.gateway.bodies import JsonRoute, content_type, parsed, whole
from dueq.gateway.lines import Answers, Loading
from dueq.gateway.listing import Wanted
from dueq.gateway.problems import Refusal, Unfit
from dueq.gateway.service import NewMessage, Service
from dueq.gateway.v1 import contents
from dueq.gateway.v1.contents import Content, Shown
from dueq.gateway.v1.model import Answer, Asked, Count, Cursor, Duration, Instant, Said, Topic

router = APIRouter(prefix="/v1/topics/{topic}/messages", tags=["messages"], route_class=JsonRoute)

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
_HEADER: Final = "dueq-"
_OF_RAW: Final = ("due", "delay", "key", "rank", "group")
"""What the headers of raw bytes say."""


class AskedMessage(Content):
    """A message to be scheduled: a payload, and when. Neither `due` nor `delay`: at once."""

    due: Instant | None = Field(default=None, description="When; never before.")
    delay: Duration | None = Field(default=None, description="How long from now.")
    key: str | None = Field(default=None, description="The message's name for its owner; at most 255 bytes.")
    rank: int | None = Field(default=None, ge=0, le=limits.RANK_MAX, description="The smallest goes first.")
    group: str | None = Field(default=None, description="Of a fair topic: whose turn the message takes.")
    headers: dict[str, str] | None = Field(
        default=None, description="What is to be known of it beside the payload."
    )


class Scheduled(Answer):
    """A message that is scheduled."""

    id: str
    due: Said
    key: str | None


class ScheduledList(Answer):
    """Messages that are scheduled, in the order in which they were asked for."""

    messages: list[Scheduled]


class Failure(Answer):
    """A line that was refused."""

    line: int
    problem: dict[str, Any]


class Summary(Answer):
    """What became of NDJSON."""

    lines: int = Field(description="Lines that were read; empty ones are not counted.")
    accepted: int
    failed: int
    failures: list[Failure] = Field(description="The first 1,000.")
    problem: dict[str, Any] | None = Field(default=None, description="Why no more lines were taken.")


class Waiting(Shown):
    """A message that waits."""

    id: str
    topic: str
    partition: int
    key: str | None
    due: Said
    waits_until: Said = Field(description="When it is ready: `due`, or later.")
    size: int = Field(description="Bytes of its payload.")
    attempt: int = Field(description="Deliveries so far.")
    rank: int
    version: str = Field(description="Grows whenever the message is moved or changed.")


class MessageAnswer(Waiting):
    """A message as its leader knows it."""

    state: Literal["waiting", "leased", "dead"]
    group: str | None
    headers: dict[str, str]
    hidden: bool = Field(description="Its job is not committed yet: it is not delivered before that.")
    holder: str | None = Field(description="The consumer that has it.")
    lease_ends: Said | None


class WaitingList(Answer):
    """A page of messages: partition by partition, each in the order in which its messages are delivered."""

    messages: list[Waiting]
    cursor: str | None = Field(description="Where the next page begins; null: this was the last.")


class Move(Asked):
    """When instead."""

    due: Instant | None = None
    delay: Duration | None = None


class Change(Asked):
    """What instead."""

    rank: int = Field(ge=0, le=limits.RANK_MAX)


_MESSAGES: Final = TypeAdapter(
    Annotated[list[AskedMessage], Field(max_length=limits.GATEWAY_ITEMS_MAX, min_length=1)]
)
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "oneOf": [
                        contents.describe(AskedMessage),
                        {
                            "type": "array",
                            "items": contents.describe(AskedMessage),
                            "minItems": 1,
                            "maxItems": limits.GATEWAY_ITEMS_MAX,
                        },
                    ]
                }
            },
            NDJSON: {"schema": {"type": "string", "description": "A message a line, of any number."}},
            "application/octet-stream": {
                "schema": {"type": "string", "format": "binary"},
                "description": "The payload as it is; the headers dueq-due, dueq-delay, dueq-key, dueq-rank and "
                "dueq-group say the rest. Any other content type means the same.",
            },
        },
    },
    "parameters": [
        {
            "in": "header",
            "name": f"{_HEADER}{name}",
            "required": False,
            "schema": {"type": "string"},
            "description": text,
        }
        for name, text in (
            ("due", "Of raw bytes: when."),
            ("delay", "Of raw bytes: how long from now."),
            ("key", "Of raw bytes: the message's name."),
            ("rank", "Of raw bytes: its rank."),
            ("group", "Of raw bytes: its group."),
        )
    ],
}


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    summary="Schedule a message, an array of them, NDJSON, or raw bytes",
    response_model=None,
    openapi_extra=_BODY,
    responses={
        201: {"model": Scheduled | ScheduledList, "description": "They are on all in-sync replicas."},
        200: {
            "description": "NDJSON: what became of the lines; with `answers=each` a line for each.",
            "content": {
                JSON: {"schema": {"$ref": "#/components/schemas/Summary"}},
                NDJSON: {"schema": {"type": "string"}},
            },
        },
    },
)  # fmt: skip
async def schedule(
    topic: Topic,
    request: Request,
    service: TheService,
    answers: Annotated[
        Literal["summary", "each"],
        Query(description="Of NDJSON: one answer, or one for each line while it is read."),
    ] = "summary",
) -> Response:
    _refuse_unknown(request)
    kind = content_type(request)
    if kind == NDJSON:
        loading = Loading(
            service, topic, lambda line, now_us: message_of(_MESSAGE.validate_python(line), now_us, "line")
        )
        if answers == "each":
            return Answers(loading.each(request), 200, media_type=NDJSON)
        return await _summary(loading, request)
    if kind == JSON:
        async with whole(request, limits.GATEWAY_JSON_BYTES_MAX) as body:
            return await _scheduled_json(topic, parsed(body), service, request)
    async with whole(request, limits.PAYLOAD_BYTES_MAX) as body:
        return await _scheduled_raw(topic, body, service, request)


_MESSAGE: Final = TypeAdapter(AskedMessage)


@router.get("", summary="List waiting messages, without touching them")
async def listed(
    topic: Topic,
    service: TheService,
    state: Annotated[Literal["waiting"], Query(description="Only messages in this state.")] = "waiting",
    from_: Annotated[
        str, Query(alias="from", description="Only those that wait until this instant or later.")
    ] = "",
    until: Annotated[str, Query(description="Only those that wait until an instant before this one.")] = "",
    key_prefix: Annotated[
        str, Query(description="Only those whose key begins like this.", max_length=255)
    ] = "",
    payloads: Annotated[bool, Query(description="Show the payloads too.")] = False,
    limit: Count = 100,
    cursor: Cursor = "",
) -> WaitingList:
    """Without a snapshot: a message that is moved meanwhile may show twice, or not at all.

    Messages that consumers have, and those of jobs that are not decided, are not shown. A page may be short, or empty,
    although more follow.
    """
    now_us = await service.now_us()
    begin = instants.instant_ms(from_, now_us, "query.from") if from_ else None
    end = instants.instant_ms(until, now_us, "query.until") if until else None
    page = await Wanted(topic, begin, end, key_prefix, payloads, limit).page(service.client, cursor)
    shown = [
        Waiting(
            id=found.id, topic=found.topic, partition=found.partition, key=found.key or None,
            due=instants.text(found.due), waits_until=instants.text(found.waits_until), size=found.size,
            attempt=found.attempt, rank=found.rank, version=str(found.version), **contents.shown(found.payload),
        )
        for found in page.messages
    ]  # fmt: skip
    return WaitingList(messages=shown, cursor=page.cursor)


@router.get("/{message_id}", summary="Show a message as it is now")
async def shown(
    topic: Topic,
    message_id: str,
    service: TheService,
    response: Response,
    payload: Annotated[bool, Query(description="Show the payload too.")] = True,
    linearizable: Annotated[
        bool, Query(description="See every change that was confirmed before, whoever made it.")
    ] = False,
) -> MessageAnswer:
    """The ETag is the id and the version."""
    found = await service.client.get(topic, message_id, payload=payload, linearizable=linearizable)
    response.headers["etag"] = f'"{found.id}.{found.version}"'
    return MessageAnswer(
        id=found.id, topic=found.topic, partition=found.partition, key=found.key or None, state=found.state,
        due=instants.text(found.due), waits_until=instants.text(found.waits_until), size=found.size,
        attempt=found.attempt, rank=found.rank, version=str(found.version), group=found.group or None,
        headers=dict(found.headers), hidden=found.hidden, holder=found.holder or None,
        lease_ends=instants.text_or_none(found.lease_ends or 0), **contents.shown(found.payload),
    )  # fmt: skip


@router.delete("/{message_id}", status_code=status.HTTP_204_NO_CONTENT, summary="Cancel a message")
async def cancelled(topic: Topic, message_id: str, service: TheService) -> None:
    """Once this is answered, the message is never delivered."""
    await service.client.producer(topic).cancel(message_id)


@router.post("/{message_id}/move", summary="Give a message another instant")
async def moved(topic: Topic, message_id: str, asked: Move, service: TheService) -> Scheduled:
    if asked.due is None and asked.delay is None:
        raise Unfit("say when: due or delay", None, None, "body.due")
    due_ms = await service.due_ms(asked.due, asked.delay)
    await service.client.producer(topic).move(message_id, due_ms)
    return Scheduled(id=message_id, due=instants.text(due_ms), key=None)


@router.post(
    "/{message_id}/trigger", status_code=status.HTTP_204_NO_CONTENT, summary="Make a message due now"
)
async def triggered(topic: Topic, message_id: str, service: TheService) -> None:
    """It is delivered at once, whatever it was waiting for; its id stays."""
    await service.client.trigger(topic, message_id)


@router.post(
    "/{message_id}/change", status_code=status.HTTP_204_NO_CONTENT, summary="Give a message another rank"
)
async def changed(topic: Topic, message_id: str, asked: Change, service: TheService) -> None:
    await service.client.producer(topic).change(message_id, rank=asked.rank)


# ---------------------------------------------------------------- what was asked


def message_of(asked: AskedMessage, now_us: int, where: str) -> NewMessage:
    """Return the message to schedule.

    Raises:
        Unfit: a value is outside its limits.
    """
    payload = contents.payload_of(asked, where)
    assert payload is not None
    due_ms = instants.chosen_ms(asked.due, asked.delay, now_us, where)
    return NewMessage(payload, due_ms, asked.key, asked.rank, asked.group, asked.headers)


def _refuse_unknown(request: Request) -> None:
    """A header that is misspelt, or not there yet, must not be ignored: it may have said when."""
    if "idempotency-key" in request.headers:
        given = request.headers["idempotency-key"]
        raise Refusal(501, "idempotency-key is not supported: a repetition would be a second message", given)
    own = [name for name in request.headers if name.startswith(_HEADER)]
    if own and content_type(request) in (JSON, NDJSON):
        text = f"{own[0]} goes with raw bytes, such as application/octet-stream; JSON has fields instead"
        raise Refusal(400, text, own[0])
    unknown = [name for name in own if name.removeprefix(_HEADER) not in AskedMessage.model_fields]
    if unknown or any(name in own for name in ("dueq-payload", "dueq-base64")):
        known = "dueq-due, dueq-delay, dueq-key, dueq-rank, dueq-group"
        raise Refusal(
            400, f"there is no header {(unknown or own)[0]}; there are {known}", (unknown or own)[0], known
        )


async def _scheduled_json(topic: str, body: Any, service: Service, request: Request) -> Response:
    now_us = await service.now_us()
    if isinstance(body, list):
        asked = _MESSAGES.validate_python(body)
        messages = [message_of(each, now_us, f"body.{row}") for row, each in enumerate(asked)]
        ids = await service.schedule(topic, messages)
        shown = [_scheduled(found, each) for found, each in zip(ids, messages, strict=True)]
        return JSONResponse({"messages": shown}, 201)
    message = message_of(_MESSAGE.validate_python(body), now_us, "body")
    return await _one(topic, message, service, request)


async def _scheduled_raw(topic: str, body: bytes, service: Service, request: Request) -> Response:
    given = {name: _header(request, _HEADER + name) for name in _OF_RAW}
    rank = given["rank"]
    if rank is not None and not (rank.isascii() and rank.isdigit() and len(rank) < 6):
        raise Unfit(
            f"dueq-rank is 0 to {limits.RANK_MAX}, not {rank!r:.80}", rank, limits.RANK_MAX, "dueq-rank"
        )
    due_ms = instants.chosen_ms(given["due"], given["delay"], await service.now_us(), "dueq")
    message = NewMessage(body, due_ms, given["key"], None if rank is None else int(rank), given["group"])
    return await _one(topic, message, service, request)


def _header(request: Request, name: str) -> str | None:
    """A header's text: UTF-8."""
    value = request.headers.get(name)
    try:
        return None if value is None else value.encode("latin-1").decode()
    except UnicodeDecodeError as error:
        raise Unfit(f"{name} is not UTF-8: {error.reason}", value, None, name) from None


async def _one(topic: str, message: NewMessage, service: Service, request: Request) -> Response:
    (message_id,) = await service.schedule(topic, [message])
    location = {"location": f"{request.url.path}/{message_id}"}
    return JSONResponse(_scheduled(message_id, message), 201, location)


async def _summary(loading: Loading, request: Request) -> Response:
    document = await loading.summary(request)
    return JSONResponse(document, 200)


def _scheduled(message_id: str, message: NewMessage) -> dict[str, Any]:
    return {"id": message_id, "due": instants.text(message.due_ms), "key": message.key}

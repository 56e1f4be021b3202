"""/v1/topics/T/messages: one, an array, NDJSON or raw bytes in; one message, and pages of them, out."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response, status
from fastapi.responses import JSONResponse
from pydantic import Field, TypeAdapter

from dueq import MessageState, ScheduledMessage, ids, limits
from dueq.client.calls import Once
from dueq.client.core.ports.parts import Placed
from dueq.client.core.ports.shared_body import NamedBody
from dueq.errors import DueqError, InvalidRequest, RequestDiffers
from dueq.gateway import instants, once, problems
from dueq.gateway.access import TheService
from dueq.gateway.answer_room import TheAnswer
from dueq.gateway.bodies import JsonRoute, content_type, parsed, whole
from dueq.gateway.lines import Answers, Loading
from dueq.gateway.listing import BEHIND_ALL, Page, Wanted
from dueq.gateway.problems import Refusal, Unfit
from dueq.gateway.service import Load, NewMessage, Service
from dueq.gateway.v1 import contents, targets
from dueq.gateway.v1.contents import SharingContent, Shown
from dueq.gateway.v1.model import Answer, Count, Cursor, Duration, Instant, Said, Topic
from dueq.gateway.v1.preconditions import etag
from dueq_codecs.records import ATTEMPTS_MAX

router = APIRouter(prefix="/v1/topics/{topic}/messages", tags=["messages"], route_class=JsonRoute)

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
_HEADER: Final = "dueq-"
_OF_RAW: Final = {
    "due": "when.",
    "delay": "how long from now.",
    "key": "the message's name.",
    "rank": "its rank.",
    "group": "its group.",
    "window": "how much later it may be due.",
    "expires": "from when on it is not delivered any more.",
    "max-attempts": "how often it is delivered before it is dead.",
}
"""The meaning of each header of raw bytes."""
_SAYS_NOTHING: Final = frozenset({"", "application/octet-stream", "application/x-www-form-urlencoded"})
"""Types of raw bytes that say nothing of them; curl sends the last one unless it is told another."""
_KNOWN: Final = ", ".join(_HEADER + name for name in _OF_RAW)


class AskedMessage(SharingContent):
    """A message to be scheduled: a payload, and when. Neither `due` nor `delay`: at once."""

    due: Instant | None = Field(default=None, description="When; never before.")
    delay: Duration | None = Field(default=None, description="How long from now.")
    key: str | None = Field(default=None, description="The message's name for its owner; at most 255 bytes.")
    rank: int | None = Field(default=None, ge=0, le=limits.RANK_MAX, description="The smallest goes first.")
    group: str | None = Field(default=None, description="Of a fair topic: whose turn the message takes.")
    headers: dict[str, str] | None = Field(
        default=None, description="What is to be known of it beside the payload."
    )
    window: Duration | None = Field(
        default=None, description="It may be due up to this much later, when few others are; at most 7 days."
    )
    expires: Instant | None = Field(
        default=None, description="From this instant on it is not delivered any more; never."
    )
    max_attempts: int | None = Field(
        default=None, ge=1, le=ATTEMPTS_MAX, description="Deliveries before it is dead; as the topic says."
    )
    target: targets.AskedTarget | None = None


class AskedLine(AskedMessage):
    """A line of NDJSON."""

    idempotency_key: str | None = Field(
        default=None, description="As the header Idempotency-Key, of this line; at most 255 bytes."
    )


class Scheduled(Answer):
    """A message that is scheduled."""

    id: str
    due: Said
    key: str | None


class ScheduledList(Answer):
    """Messages that are scheduled, in the order in which they were asked for."""

    messages: list[Scheduled]


class Taken(Answer):
    """A message that is not scheduled, since its key names another one."""

    key: str | None
    problem: dict[str, Any]


class ScheduledSome(Answer):
    """Messages in the order in which they were asked for; some are not scheduled."""

    messages: list[Scheduled | Taken]


class Failure(Answer):
    """A line that was refused."""

    line: int
    problem: dict[str, Any]


class Summary(Answer):
    """The outcome of a request of NDJSON."""

    lines: int = Field(description="Lines that were read; empty ones are not counted.")
    accepted: int
    failed: int
    failures: list[Failure] = Field(description="The first 1,000.")
    problem: dict[str, Any] | None = Field(default=None, description="Why no more lines were taken.")


class Listed(Shown):
    """A message that waits, or is dead."""

    id: str
    topic: str
    partition: int
    key: str | None
    due: Said
    waits_until: Said = Field(description="When it is ready: `due`, or later.")
    size: int = Field(description="Bytes of its payload.")
    attempt: int = Field(description="Deliveries so far.")
    rank: int
    group: str | None = Field(description="Of a fair topic.")
    version: str = Field(description="Grows whenever the message is moved or changed.")
    headers: dict[str, str]
    expires: Said | None = Field(description="From when on it is not delivered any more.")
    died_at: Said | None = Field(description="Of a dead message.")


class ListedMessage(Listed):
    """A message of a list."""

    state: Literal["waiting", "leased", "dead"]
    reason: str | None = Field(description="Why it was given back last, of a dead message.")
    holder: str | None = Field(description="The consumer that has it, of a leased message.")
    lease_ends: Said | None = Field(description="When its lease runs out, of a leased message.")


class MessageAnswer(Listed):
    """A message as its leader knows it."""

    state: Literal["waiting", "leased", "dead"]
    hidden: bool = Field(description="Its job is not committed yet: it is not delivered before that.")
    holder: str | None = Field(description="The consumer that has it.")
    token: str | None = Field(description="Of the lease: what settles it.")
    lease_ends: Said | None


class MessageList(Answer):
    """A page of messages: partition by partition, each in the order in which they are delivered, or have died.

    Those that consumers have come last, in the order of their ids.
    """

    messages: list[ListedMessage]
    cursor: str | None = Field(description="Where the next page begins; null: this was the last.")


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
                "description": "The payload as it is; the headers dueq-… say the rest. Any other content type means "
                "the same, and becomes the message's header `content_type`, but for application/x-www-form-urlencoded.",
            },
        },
    },
    "parameters": [
        {
            "in": "header",
            "name": f"{_HEADER}{name}",
            "required": False,
            "schema": {"type": "string"},
            "description": f"Of raw bytes: {text}",
        }
        for name, text in _OF_RAW.items()
    ]
    + [
        {
            "in": "header",
            "name": "idempotency-key",
            "required": False,
            "schema": {"type": "string", "maxLength": limits.IDEMPOTENCY_KEY_BYTES_MAX, "minLength": 1},
            "description": "Of any text: for 24 hours a repetition of the request gets the first answer, and another "
            "request with the same key is refused (422). Lines of NDJSON have keys of their own: `idempotency_key`.",
        }
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
            "description": "NDJSON: what became of the lines; with `answers=each` a line for each. An array: some "
            "keys are taken.",
            "content": {
                JSON: {
                    "schema": {
                        "anyOf": [
                            {"$ref": "#/components/schemas/Summary"},
                            {"$ref": "#/components/schemas/ScheduledSome"},
                        ]
                    }
                },
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
    job: Annotated[
        str | None,
        Query(description="The job to which they belong: a name that you choose.", max_length=1024),
    ] = None,
    hidden_for: Annotated[
        str | None,
        Query(description="Hide the job's messages until it is committed, within this time; at most 7 days."),
    ] = None,
    on_duplicate: Annotated[
        Literal["refuse", "keep", "replace"] | None,
        Query(
            description="Of a topic with unique keys, if a key names a message already: refuse the new one (409), keep "
            "the other one (its id is the answer), or replace it."
        ),
    ] = None,
) -> Response:
    _refuse_unknown(request)
    kind = content_type(request)
    loads = await _load(service, topic, job, hidden_for, on_duplicate)
    if kind == NDJSON:
        if loads.fault is not None:
            raise loads.fault
        loading = Loading(
            service,
            topic,
            partial(_of_line, request),
            loads,
        )
        if answers == "each":
            await service.now_us()  # the first line needs it, and that is read once 200 is said
            return Answers(loading.each(request), 200, media_type=NDJSON)
        return await _summary(loading, request)
    if kind == JSON:
        async with whole(request, limits.GATEWAY_JSON_BYTES_MAX) as body:
            asked = _idempotency(request, body)
            return await _scheduled_json(topic, parsed(body), loads, service, request, asked)
    async with whole(request, limits.PAYLOAD_BYTES_MAX) as body:
        asked = _idempotency(request, body)
        return await _scheduled_raw(topic, body, loads, service, request, asked)


_MESSAGE: Final = TypeAdapter(AskedMessage)
_LINE: Final = TypeAdapter(AskedLine)


@router.get("", summary="List waiting, leased or dead messages, without touching them")
async def listed(
    topic: Topic,
    service: TheService,
    answer: TheAnswer,
    state: Annotated[
        Literal["waiting", "leased", "dead"] | None,
        Query(
            description="Only messages in this state. Without it those that wait, and then those that consumers have. "
            "Leased ones are shown without payloads, and are in no list by time."
        ),
    ] = None,
    from_: Annotated[
        str,
        Query(alias="from", description="Only those that wait until (or died at) this instant or later."),
    ] = "",
    until: Annotated[
        str, Query(description="Only those that wait until (or died at) an instant before this one.")
    ] = "",
    key_prefix: Annotated[
        str, Query(description="Only those whose key begins like this.", max_length=255)
    ] = "",
    payloads: Annotated[bool, Query(description="Show the payloads too.")] = False,
    limit: Count = 100,
    cursor: Cursor = "",
) -> MessageList:
    """Without a snapshot: a message that is moved or leased meanwhile may show twice, or not at all.

    Messages of jobs that are not decided are not shown. A page may be short, or empty, although more follow.
    """
    if state == "leased":
        return await _leased(service, topic, from_ or until, payloads, key_prefix, limit, cursor)
    leased_too = state is None and not from_ and not until
    if leased_too and len(cursor) == ids.TEXT_LENGTH:
        return await _leased(service, topic, "", False, key_prefix, limit, cursor)
    now_us = await service.now_us()
    begin = instants.instant_ms(from_, now_us, "query.from") if from_ else None
    end = instants.instant_ms(until, now_us, "query.until") if until else None

    async def read(payloads: bool) -> Page:
        wanted = Wanted(topic, state or "waiting", begin, end, key_prefix, payloads, limit)
        return await wanted.page(service.client, cursor)

    page = await (answer.read(read, lambda page: page.size) if payloads else read(False))
    shown = [
        ListedMessage(
            **_fields(found),
            state=state or "waiting",
            reason=found.reason or None,
            holder=None,
            lease_ends=None,
        )
        for found in page.messages
    ]
    if page.cursor is not None or not leased_too:
        return MessageList(messages=shown, cursor=page.cursor)
    if len(shown) == limit:
        return MessageList(messages=shown, cursor=BEHIND_ALL.text())
    rest = await _leased(service, topic, "", False, key_prefix, limit - len(shown), "")
    return MessageList(messages=shown + rest.messages, cursor=rest.cursor)


async def _leased(
    service: Service, topic: str, time: str, payloads: bool, key_prefix: str, limit: int, cursor: str
) -> MessageList:
    """A page of messages that consumers have; the cursor is the id of the last one."""
    if time:
        text = f"messages that consumers have are listed by id, not by time: leave out {time!r:.80}"
        raise Unfit(text, time, None, "query.from")
    if payloads:
        text = "messages that consumers have are listed without payloads; show them one by one"
        raise Unfit(text, payloads, None, "query.payloads")
    found = await service.client.leased(topic, after=cursor or None, limit=limit)
    shown = [
        ListedMessage(
            **_fields(each), state="leased", reason=each.reason or None, holder=each.holder,
            lease_ends=instants.text_or_none(each.lease_ends or 0),
        )
        for each in found
        if each.key.startswith(key_prefix)
    ]  # fmt: skip
    return MessageList(messages=shown, cursor=found[-1].id if len(found) == limit else None)


@router.get("/{message_id}", summary="Show a message as it is now")
async def shown(
    topic: Topic,
    message_id: str,
    service: TheService,
    answer: TheAnswer,
    response: Response,
    payload: Annotated[bool, Query(description="Show the payload too.")] = True,
    linearizable: Annotated[
        bool, Query(description="See every change that was confirmed before, whoever made it.")
    ] = False,
) -> MessageAnswer:
    """The ETag is the id and the version."""

    async def read(payload: bool) -> MessageState:
        return await service.client.get(topic, message_id, payload=payload, linearizable=linearizable)

    found = await (answer.read(read, lambda found: found.size) if payload else read(False))
    response.headers["etag"] = etag(found.id, found.version)
    return message_answer(found)


def message_answer(found: MessageState) -> MessageAnswer:
    """Return a message as answers have it."""
    return MessageAnswer(
        **_fields(found), state=found.state, hidden=found.hidden,
        holder=found.holder or None, token=str(found.token) if found.token else None,
        lease_ends=instants.text_or_none(found.lease_ends or 0),
    )  # fmt: skip


def _fields(found: ScheduledMessage | MessageState) -> dict[str, Any]:
    return {
        "id": found.id, "topic": found.topic, "partition": found.partition, "key": found.key or None,
        "due": instants.text(found.due), "waits_until": instants.text(found.waits_until), "size": found.size,
        "attempt": found.attempt, "rank": found.rank, "group": found.group or None, "version": str(found.version),
        "headers": dict(found.headers),
        "expires": instants.text_or_none(found.expires), "died_at": instants.text_or_none(found.died_at),
        **contents.shown(found.payload),
    }  # fmt: skip


# ---------------------------------------------------------------- what was asked


def message_of(asked: AskedMessage, now_us: int, where: str) -> NewMessage:
    """Return the message to schedule.

    Raises:
        Unfit: a value is outside its limits.
    """
    body = contents.body_of(asked, where)
    payload = contents.payload_of(asked, where) if body is None else b""
    assert payload is not None
    headers = asked.headers
    if asked.target is not None and body is not None:
        raise Unfit(f"{where} has a target or a shared body, not both", asked.body, None, f"{where}.body")
    if asked.target is not None:
        payload, headers = targets.around(asked.target, payload, headers, f"{where}.target")
    due_ms = instants.chosen_ms(asked.due, asked.delay, now_us, where)
    window = None if asked.window is None else instants.duration(asked.window, f"{where}.window")
    expires = (
        None if asked.expires is None else instants.instant_ms(asked.expires, now_us, f"{where}.expires")
    )
    return NewMessage(
        payload if body is None else body,
        due_ms,
        asked.key,
        asked.rank,
        asked.group,
        headers,
        window,
        expires,
        asked.max_attempts,
    )


def _refuse_unknown(request: Request) -> None:
    """A header that is misspelt, or not there yet, must not be ignored: it may have said when."""
    if once.HEADER in request.headers and content_type(request) == NDJSON:
        text = f"{once.HEADER} is not for NDJSON, of any length: give lines an idempotency_key each"
        raise Refusal(400, text, request.headers[once.HEADER])
    own = [name for name in request.headers if name.startswith(_HEADER)]
    if own and content_type(request) in (JSON, NDJSON):
        text = f"{own[0]} goes with raw bytes, such as application/octet-stream; JSON has fields instead"
        raise Refusal(400, text, own[0])
    unknown = [name for name in own if name.removeprefix(_HEADER) not in _OF_RAW]
    if unknown:
        raise Refusal(400, f"there is no header {unknown[0]}; there are {_KNOWN}", unknown[0], _KNOWN)


def _idempotency(request: Request, body: bytes) -> Once | None:
    key = _header(request, once.HEADER)
    return None if key is None else once.of_request(request, once.checked(key, once.HEADER), body)


def _of_line(request: Request, line: Any, now_us: int, text: bytes) -> NewMessage:
    asked = _LINE.validate_python(line)
    message = message_of(asked, now_us, "line")
    if asked.idempotency_key is None:
        return message
    name = once.checked(asked.idempotency_key, "line.idempotency_key")
    (message,) = once.named([message], once.of_line(request, name, text))
    return message


async def _scheduled_json(
    topic: str, body: Any, load: Load, service: Service, request: Request, asked_once: Once | None
) -> Response:
    now_us = await service.now_us()
    if isinstance(body, list):
        asked = _MESSAGES.validate_python(body)
        messages = [message_of(each, now_us, f"body.{row}") for row, each in enumerate(asked)]
        first = messages[0].payload
        for row, message in enumerate(messages):
            if message.payload != first and isinstance(first, NamedBody) | isinstance(
                message.payload, NamedBody
            ):
                text = f"body.{row}: all messages of an array have the same shared body, or none has one"
                raise Unfit(text, asked[row].body, asked[0].body, f"body.{row}.body")
        messages = once.named(messages, asked_once) if asked_once is not None else messages
        return _many(messages, await service.place(topic, messages, load))
    message = message_of(_MESSAGE.validate_python(body), now_us, "body")
    return await _one(topic, message, load, service, request, asked_once)


async def _scheduled_raw(
    topic: str, body: bytes, load: Load, service: Service, request: Request, asked_once: Once | None
) -> Response:
    given = {name: _header(request, _HEADER + name) for name in _OF_RAW}
    now_us = await service.now_us()
    due_ms = instants.chosen_ms(given["due"], given["delay"], now_us, "dueq")
    window, expires = given["window"], given["expires"]
    said = _header(request, "content-type")
    message = NewMessage(
        body, due_ms, given["key"], _number(given, "rank", 0, limits.RANK_MAX), given["group"],
        None if content_type(request) in _SAYS_NOTHING else {"content_type": (said or "").strip()},
        window=None if window is None else instants.duration(window, "dueq-window"),
        expires_ms=None if expires is None else instants.instant_ms(expires, now_us, "dueq-expires"),
        max_attempts=_number(given, "max-attempts", 1, ATTEMPTS_MAX),
    )  # fmt: skip
    return await _one(topic, message, load, service, request, asked_once)


def _many(messages: list[NewMessage], placed: list[Placed | DueqError]) -> Response:
    """The answer about an array; raises the only refusal, or that of the array's idempotency key."""
    refused = [each for each in placed if isinstance(each, DueqError)]
    for error in refused:
        if len(placed) == 1 or isinstance(error, RequestDiffers):
            raise error
    shown = [
        _scheduled(found, message)
        if isinstance(found, Placed)
        else {"key": message.key, "problem": problems.of_error(found)}
        for found, message in zip(placed, messages, strict=True)
    ]
    return JSONResponse({"messages": shown}, 200 if refused else 201)


def _number(given: dict[str, str | None], name: str, low: int, high: int) -> int | None:
    text = given[name]
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
        where = _HEADER + name
        raise Unfit(f"{where} is {low} to {high}, not {text!r:.80}", text, high, where)
    return int(text)


async def _load(
    service: Service, topic: str, name: str | None, hidden_for: str | None, on_duplicate: str | None
) -> Load:
    """What holds of all messages of the request; their job is begun if there is none of this name."""
    if name is None:
        if hidden_for is not None:
            raise Unfit("query.hidden_for goes with job", hidden_for, None, "query.hidden_for")
        return Load(None, on_duplicate)
    hidden = None if hidden_for is None else instants.duration(hidden_for, "query.hidden_for")
    try:
        return Load(await service.client.begin_job(topic, name, hidden_for=hidden), on_duplicate)
    except InvalidRequest as fault:
        # Others may have begun it anew in another way since: a repetition gets its first answer all the same.
        return Load(None, on_duplicate, fault)


def _header(request: Request, name: str) -> str | None:
    """A header's text: UTF-8; one that comes twice is refused, since only one of both could count."""
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise Unfit(f"{name} comes {len(values)} times", ", ".join(values), 1, name)
    value = values[0] if values else None
    try:
        return None if value is None else value.encode("latin-1").decode()
    except UnicodeDecodeError as error:
        raise Unfit(f"{name} is not UTF-8: {error.reason}", value, None, name) from None


async def _one(
    topic: str, message: NewMessage, load: Load, service: Service, request: Request, asked_once: Once | None
) -> Response:
    if asked_once is not None:
        (message,) = once.named([message], asked_once)
    (placed,) = await service.place(topic, [message], load)
    if isinstance(placed, DueqError):
        raise placed
    location = {"location": f"{request.url.path}/{placed.id}"}
    return JSONResponse(_scheduled(placed, message), 201, location)


async def _summary(loading: Loading, request: Request) -> Response:
    document = await loading.summary(request)
    return JSONResponse(document, 200)


def _scheduled(placed: Placed, message: NewMessage) -> dict[str, Any]:
    return {"id": placed.id, "due": instants.text(placed.due_ms), "key": message.key}

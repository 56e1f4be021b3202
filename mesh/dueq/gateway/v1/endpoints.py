"""/v1/endpoints: URLs to which gateways send the messages of topics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Request, Response, status
from pydantic import AfterValidator, Field

from dueq import EndpointInfo
from dueq.client import endpoints
from dueq.client.endpoints import DEFAULT_IN_FLIGHT, DEFAULT_TIMEOUT_S, GRACE_S, Made
from dueq.errors import DueqError
from dueq.gateway import instants, pauses
from dueq.gateway.access import TheService, TheWebhooks
from dueq.gateway.bodies import JsonRoute
from dueq.gateway.gone import unless_gone
from dueq.gateway.service import Service
from dueq.gateway.v1.model import Answer, Asked, Duration, Instant, Said
from dueq.gateway.v1.preconditions import version_seen
from dueq.gateway.webhooks.counters import Counters
from dueq_codecs.meta import HEADER_NAME_BYTES_MAX, packed_headers

router = APIRouter(prefix="/v1/endpoints", tags=["endpoints"], route_class=JsonRoute)

Name = Annotated[str, Path(description="The endpoint's name.", examples=["billing"])]


def _of_a_message(name: str) -> str:
    """Return a name, if a message can have a header of it.

    Raises:
        MetaRefused: none can. A filter by it would finish every message.
    """
    packed_headers({name: ""})
    return name


HeaderName = Annotated[
    str, Field(min_length=1, max_length=HEADER_NAME_BYTES_MAX), AfterValidator(_of_a_message)
]


class NewEndpoint(Asked):
    """An endpoint to be created or changed."""

    topic: str = Field(description="An existing topic; it has one endpoint at most.", examples=["bills"])
    url: str = Field(description="Where to: https:// or http://.", examples=["https://example.com/hook"])
    secrets: list[str] | None = Field(
        default=None,
        description="To sign with, the newest first: `whsec_` and base64. Left out: as they are, or a new one.",
    )
    timeout: Duration = Field(default=DEFAULT_TIMEOUT_S, description="How long a receiver may take; 15 s.")
    max_in_flight: int = Field(default=DEFAULT_IN_FLIGHT, description="Requests of one gateway at a time.")
    headers: dict[str, str] = Field(default={}, description="Of every request; the values are never shown.")
    filter: dict[HeaderName, str | list[str]] = Field(
        default={},
        description="Values by the names of headers: a message without one of them is finished, not sent.",
    )
    targets: bool = Field(default=False, description="Messages may name URLs of their own.")


class Secret(Answer):
    """A secret that is used."""

    id: str = Field(description="The beginning of its SHA-256; of a private key the public one, `whpk_…`.")
    until: Said | None = Field(description="When its use ends.")


class Here(Answer):
    """Counts of this gateway since it began to serve the endpoint; other gateways have counts of their own."""

    delivered: int
    failed: int = Field(description="Attempts that count.")
    postponed: int = Field(description="Answers that asked for a pause.")
    dead: int = Field(description="Messages whose receiver wants no further attempt.")
    filtered: int
    put_back: int = Field(description="Messages that were given back unsent, uncounted.")
    leases_lost: int
    mean_seconds: float | None = Field(description="Of all answers.")
    last_success: Said | None
    last_failure: Said | None
    last_error: str
    held_until: Said | None = Field(description="Nothing is sent before, as the receiver has asked.")
    in_flight: int
    window: int = Field(description="Requests that may be under way: fewer while the receiver fails.")


class Endpoint(Answer):
    """An endpoint."""

    name: str
    topic: str
    url: str
    version: str
    timeout_seconds: float
    max_in_flight: int
    headers: list[str] = Field(description="Their names.")
    filter: dict[str, list[str]]
    secrets: list[Secret]
    targets: bool
    disabled: str = Field(description="Why nothing is sent any more; empty: it is in use.")
    paused: bool = Field(description="Its topic is.")
    paused_until: Said | None
    sealed: bool | None = Field(
        description="Its secrets are stored so that only brokers' and gateways' key opens them. null: that is not "
        "known yet, as no broker answers right after a change."
    )
    secret: str | None = Field(default=None, description="That was made for it; it is never shown again.")
    here: Here | None = Field(default=None, description="Left out of lists, and where it is not served.")


class EndpointList(Answer):
    """All endpoints, by name."""

    endpoints: list[Endpoint]


class Pause(Asked):
    """How long to pause."""

    until: Instant | None = Field(default=None, description="When it ends by itself; never, if left out.")


class Rotation(Asked):
    """A new secret."""

    secret: str | None = Field(default=None, description="Left out: one is made.")
    grace: Duration = Field(
        default=GRACE_S, description="How long the present ones are used beside it; 24 h."
    )


class Tested(Answer):
    """The answer of a receiver to a test."""

    status: int = Field(description="Of HTTP; 0: there was no answer.")
    seconds: float
    text: str = Field(description="The beginning of the answer, unless it is 2xx; or what went wrong.")


async def _seen(
    name: Name,
    if_match: Annotated[
        str | None,
        Header(
            description="The ETag that the endpoint must have, else it is left as it is (412).",
            examples=['"billing.3"'],
        ),
    ] = None,
) -> int | None:
    """Return the version that `If-Match` names; None: any, or that there is none yet."""
    if if_match is not None and if_match.strip() == "*":
        return endpoints.PRESENT
    return version_seen(if_match, name, "endpoint")


IfMatch = Annotated[int | None, Depends(_seen)]


@router.put("/{name}", summary="Create an endpoint, or change it")
async def put(
    name: Name,
    asked: NewEndpoint,
    service: TheService,
    webhooks: TheWebhooks,
    version: IfMatch,
    response: Response,
) -> Endpoint:
    """The ETag is its name and version."""
    timeout = instants.duration(asked.timeout, "body.timeout")
    steps = endpoints.put(
        name, asked.topic, asked.url, asked.secrets, timeout, asked.max_in_flight, asked.headers, asked.filter,
        asked.targets, None, version,
    )  # fmt: skip
    made = await service.client.connection.follow(steps, None)
    webhooks.look()
    return tagged(await _changed(service, made), response)


@router.get("", summary="List the endpoints, by name")
async def listed(service: TheService) -> EndpointList:
    now_ms = await service.now_us() // 1000
    found = await service.client.endpoints()
    return EndpointList(endpoints=[answer(pauses.as_of(now_ms, info)) for info in found])


@router.get("/{name}", summary="Show an endpoint, and what this gateway did for it")
async def shown(name: Name, service: TheService, webhooks: TheWebhooks, response: Response) -> Endpoint:
    """The ETag is its name and version."""
    found = tagged(await _as_it_is(service, name), response)
    counters = webhooks.counters(found.topic, name)
    found.here = None if counters is None else _here(counters)
    return found


@router.delete(
    "/{name}", status_code=status.HTTP_204_NO_CONTENT, summary="Delete an endpoint; its topic stays"
)
async def deleted(name: Name, service: TheService, webhooks: TheWebhooks, version: IfMatch) -> None:
    await service.client.delete_endpoint(name, if_version=version)
    webhooks.look()


@router.post("/{name}/pause", summary="Pause its topic")
async def paused(name: Name, service: TheService, asked: Pause | None = None) -> Endpoint:
    if asked is None or asked.until is None:
        await service.client.pause_endpoint(name)
    else:
        until = instants.instant_ms(asked.until, await service.now_us(), "body.until")
        await service.client.pause_endpoint(name, until)
    return await _as_it_is(service, name)


@router.post("/{name}/resume", summary="End the pause, and use it again if it was disabled")
async def resumed(name: Name, service: TheService, webhooks: TheWebhooks) -> Endpoint:
    await service.client.resume_endpoint(name)
    webhooks.look()
    return await _as_it_is(service, name)


@router.post("/{name}/rotate", summary="Sign with a new secret, and for a while with the present ones too")
async def rotated(
    name: Name, service: TheService, webhooks: TheWebhooks, asked: Rotation | None = None
) -> Endpoint:
    wanted = asked or Rotation()
    grace = instants.duration(wanted.grace, "body.grace")
    now_ms = await service.now_us() // 1000
    steps = endpoints.rotate(name, wanted.secret, grace, now_ms)
    made = await service.client.connection.follow(steps, None)
    webhooks.look()
    return await _changed(service, made)


@router.post("/{name}/test", summary="Send a request that is no message's, and show the answer")
async def tested(name: Name, webhooks: TheWebhooks, request: Request) -> Tested:
    """If you are gone before the receiver answers, nobody waits for it any more."""
    found = await unless_gone(request, webhooks.test(name))
    return Tested(status=found.status, seconds=round(found.seconds, 6), text=found.text)


async def _changed(service: Service, made: Made) -> Endpoint:
    """Return an endpoint that was changed, as it is stored; as it was sent, if nobody can say that.

    A secret is told now or never.
    """
    try:
        return await _as_it_is(service, made.info.name, made.secret)
    except DueqError:
        return answer(made.info, made.secret).model_copy(update={"sealed": None})


def tagged(found: Endpoint, response: Response) -> Endpoint:
    """Give a response the ETag of the endpoint that it shows."""
    response.headers["etag"] = f'"{found.name}.{found.version}"'
    return found


async def _as_it_is(service: Service, name: str, made: str = "") -> Endpoint:
    info = await service.client.endpoint(name)
    return answer(pauses.as_of(await service.now_us() // 1000, info), made)


def answer(info: EndpointInfo, made: str = "") -> Endpoint:
    """Return an endpoint as answers have it."""
    return Endpoint(
        name=info.name, topic=info.topic, url=info.url, version=str(info.version), timeout_seconds=info.timeout,
        max_in_flight=info.max_in_flight, headers=list(info.headers), filter=info.filter,
        secrets=[
            Secret(id=each, until=None if until is None else instants.of_time(until))
            for each, until in info.secrets
        ],
        targets=info.targets, disabled=info.disabled, paused=info.paused,
        paused_until=instants.of_time(info.paused_until) if info.paused_until else None,
        sealed=info.sealed, secret=made or None,
    )  # fmt: skip


def _here(found: Counters) -> Here:
    answers = sum(found.fates.values())
    return Here(
        delivered=found.delivered, failed=found.failed, postponed=found.postponed, dead=found.dead,
        filtered=found.filtered, put_back=found.put_back, leases_lost=found.leases_lost,
        mean_seconds=round(found.seconds / answers, 6) if answers else None,
        last_success=instants.text_or_none(found.last_success_ms),
        last_failure=instants.text_or_none(found.last_failure_ms), last_error=found.last_failure,
        held_until=instants.text_or_none(found.held_until_ms), in_flight=found.in_flight, window=found.window,
    )  # fmt: skip

"""/v1/topics/T/bodies: bytes that many messages have as their payload, brought once."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, status
from pydantic import Field

from dueq import limits
from dueq.client.payloads import shared_body
from dueq.gateway import shared_bodies
from dueq.gateway.access import TheService
from dueq.gateway.bodies import JsonRoute, whole
from dueq.gateway.problems import Refusal
from dueq.gateway.v1.model import Answer, Topic

router = APIRouter(prefix="/v1/topics/{topic}/bodies", tags=["messages"], route_class=JsonRoute)

Name = Annotated[str, Path(description="What the upload was answered with.", max_length=100)]

_BYTES: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/octet-stream": {
                "schema": {"type": "string", "format": "binary"},
                "description": "The bytes as they are. Any other content type means the same.",
            }
        },
    }
}


class Body(Answer):
    """A shared body that every partition of the topic keeps."""

    body: str = Field(description="What names it: `body` of messages and recurrences.")
    sha256: str = Field(description="SHA-256 of the bytes, in hex.")
    size: int = Field(description="Bytes.")


class Ended(Answer):
    """A shared body that goes with the last of its messages."""

    partitions: int = Field(description="How many partitions had it.")


@router.post(
    "", status_code=status.HTTP_201_CREATED, summary="Bring a body that many messages share", openapi_extra=_BYTES
)  # fmt: skip
async def put(
    topic: Topic,
    request: Request,
    service: TheService,
    sha256: Annotated[
        str | None,
        Query(
            description="What the SHA-256 of the bytes must be, in hex; other bytes are refused (409).",
            pattern="^[0-9a-f]{64}$",
        ),
    ] = None,
) -> Body:
    """It is kept while messages or recurrences have it, and for an hour after it was brought or named last."""
    async with whole(request, limits.BODY_BYTES_MAX) as data:
        body = shared_body(data)
        found = body.name.hex()
        if sha256 is not None and found != sha256:
            raise Refusal(
                409, f"the SHA-256 of these {body.size} bytes is {found}, not {sha256}", found, sha256
            )
        await service.shared.put(topic, data)
    return Body(body=shared_bodies.text_of(body), sha256=found, size=body.size)


@router.delete("/{name}", summary="Let a body go with the last of its messages")
async def ended(topic: Topic, name: Name, service: TheService) -> Ended:
    return Ended(partitions=await service.shared.end(topic, shared_bodies.named(name, "name")))

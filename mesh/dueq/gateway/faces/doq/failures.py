"""Routes and errors as doq has them: problem+json with `errors`, and a status that its versions choose differently."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from enum import Enum
from http import HTTPStatus
from typing import Any, Final, Literal
from urllib.parse import quote, unquote

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import Scope

from dueq import errors, limits
from dueq.errors import DueqError
from dueq.gateway import bodies, problems
from dueq.gateway.logs import log

Statuses = Literal["legacy", "new"]
"""Which of doq's versions decides about statuses: that of July 2026 and before, or later ones."""


class Kind(Enum):
    """The kind of a failure: its statuses in older and in newer versions."""

    MISSING = (400, 404)
    """The queue or message is not there, or not in that state; the queue is empty."""
    MISSING_HERE = (409, 404)
    """The same, where older versions answer as to a conflict."""
    UNFIT = (409, 422)
    """The settings cannot be."""
    CONFLICT = (409, 409)
    INVALID = (422, 422)
    UNAVAILABLE = (409, 503)


class DoqError(Exception):
    """A request that fails.

    Args:
        kind: what went wrong.
        detail: which request it was.
        text: what was wrong this time.
        where: the place in the request, such as body.priority.
        value: what was given there.
    """

    def __init__(self, kind: Kind, detail: str, text: str, where: str = "", value: object = None) -> None:
        super().__init__(text)
        self.kind, self.detail, self.where, self.value = kind, detail, where, value


class DoqRoute(APIRoute):
    """A route whose errors are doq's.

    A parameter is decoded after its place in the path is known: the name of a queue may have a slash, as `%2F`.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for this route, and its parameters."""
        raw = scope.get("raw_path") or quote(scope["path"]).encode()  # a server need not tell it
        match, found = super().matches({**scope, "path": raw.decode("ascii")})
        if match is not Match.NONE:
            found["path_params"] = {name: unquote(text) for name, text in found["path_params"].items()}
        return match, found

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer = super().get_route_handler()

        async def handler(request: Request) -> Response:
            statuses: Statuses = request.app.state.doq_errors
            try:
                return await answer(request)
            except DoqError as error:
                fault: dict[str, Any] = {"message": str(error)}
                if error.where:
                    fault |= {"location": error.where, "value": error.value}
                return _problem(error.kind.value[statuses == "new"], error.detail, [fault])
            except ValidationError as error:
                return _problem(422, "validation failed", [_fault(each) for each in error.errors()])
            except DueqError as error:
                return _problem(_status_of(error, statuses), str(error), [{"message": str(error)}])
            except HTTPException as error:
                return _problem(error.status_code, error.detail, [])
            except ClientDisconnect:
                raise  # that is no defect
            except Exception as error:
                log.error(
                    "doq.request_broken", method=request.method, path=request.url.path, error=repr(error)
                )
                return _problem(500, "unexpected error occurred", [])

        return handler


async def body_of(request: Request) -> Any:
    """Read a body.

    Raises:
        Refusal: it is none, is no JSON, too long, or of another content type.
    """
    kind = bodies.content_type(request)
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise problems.Refusal(415, f"the body is application/json, not {kind!r:.80}")
    async with bodies.whole(request, limits.GATEWAY_JSON_BYTES_MAX) as body:
        if not body:
            raise problems.Refusal(400, "request body is required")
        return bodies.parsed(body)


def _status_of(error: DueqError, statuses: Statuses) -> int:
    if isinstance(error, errors.InvalidRequest | errors.PayloadTooLarge):
        return 422
    if isinstance(error, errors.Busy):
        return 429
    if isinstance(error, errors.Unavailable | errors.PartialFailure):
        return Kind.UNAVAILABLE.value[statuses == "new"]
    if isinstance(error, errors.OutcomeUnknown | errors.NotYetApplied):
        return 504
    return 500


_WHERE: Final = ("body", "path", "query")


def _fault(found: Any) -> dict[str, Any]:
    said = problems.of_validation([found])
    where = ".".join(str(part) for part in found["loc"])
    if found["type"] == "extra_forbidden":
        return {"message": "unexpected property", "location": f"body.{where}", "value": said.get("value")}
    where = where if where.partition(".")[0] in _WHERE else f"body.{where}".rstrip(".")
    return {"message": found["msg"], "location": where, "value": said.get("value")}


def _problem(status: int, detail: str, faults: list[dict[str, Any]]) -> Response:
    document = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, "errors": faults}
    return JSONResponse(document, status, media_type=problems.MEDIA_TYPE)

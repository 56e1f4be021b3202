"""Errors as problem+json (RFC 9457), by the names of the SDK's exceptions.

A problem says what went wrong (`error`, `detail`), where it is known the value that was refused and its limit, and
whether the same request can succeed later (`retry`, `retry_after`).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Mount

from dueq import errors, limits
from dueq.errors import Busy, DueqError, InvalidRequest, KeyTaken, PartialFailure, VersionDiffers
from dueq.gateway.heads import is_read
from dueq.gateway.logs import log

MEDIA_TYPE: Final = "application/problem+json"
_METHODS: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")
_VALUE_MAX: Final = 200

_STATUS: Final[dict[type[DueqError], int]] = {
    errors.InvalidRequest: 422,
    errors.PayloadTooLarge: 413,
    errors.TopicNotFound: 404,
    errors.MessageNotFound: 404,
    errors.JobNotFound: 404,
    errors.RecurrenceNotFound: 404,
    errors.EndpointNotFound: 404,
    errors.UnknownBody: 404,
    errors.NotAllowed: 403,
    errors.ClientClosed: 503,
    errors.VersionDiffers: 412,
    errors.RequestDiffers: 422,
    errors.Refused: 409,
    errors.Busy: 429,
    errors.DiskFull: 507,
    errors.Unavailable: 503,
    errors.SecretsSealed: 503,
    errors.OutcomeUnknown: 504,
    errors.NotYetApplied: 504,
    errors.PartialFailure: 503,
    errors.DueqError: 500,
}
"""The status of each family; an error that is not named here has the status of its parent."""

_HTTP: Final = {
    400: "InvalidRequest",
    403: "NotAllowed",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "TooSlow",
    411: "LengthMissing",
    413: "PayloadTooLarge",
    414: "AddressTooLong",
    415: "UnsupportedMediaType",
    421: "NotAllowed",
    431: "HeadersTooLong",
}


class Problem(BaseModel):
    """A problem: why a request failed (RFC 9457)."""

    type: str = Field(description="urn:dueq:error: and the name of the error.")
    title: str = Field(description="The error in words, the same for each of its kind.")
    status: int
    detail: str = Field(description="What was wrong this time: it names the value and the limit.")
    error: str = Field(
        description="The name of the error, where it is one of the SDK's exceptions the same name."
    )
    retry: bool = Field(description="Whether the same request can succeed later.")
    retry_after: float | None = Field(default=None, description="Seconds after which that is worth while.")
    where: str | None = Field(default=None, description="The place in the request, such as body.due.")
    value: Any = Field(default=None, description="The value that was refused.")
    limit: Any = Field(default=None, description="The limit that it broke.")
    present: str | None = Field(
        default=None,
        description="Of a message that has another version than the one expected: its version. Of a key that is taken: "
        "the id of the message that it names.",
    )
    due_ms: int | None = Field(default=None, description="Of that message: when it is due, Unix ms.")
    errors: list[dict[str, Any]] | None = Field(
        default=None, description="All of them, when there are several."
    )


class Unfit(InvalidRequest):
    """A value that the gateway itself refuses: the text, and the value and limit apart.

    Attributes:
        status: of the answer.
    """

    status = 422

    def __init__(
        self, text: str, value: object = None, limit: object = None, where: str | None = None
    ) -> None:
        super().__init__(text)
        self.value, self.limit, self.where = value, limit, where


class PassUnknown(Unfit):
    """A pass of which nothing is known."""

    status = 404


class Refusal(HTTPException):
    """A request that is refused before anything of the mesh is asked."""

    def __init__(
        self, status: int, detail: str, value: object = None, limit: object = None, retry: bool = False
    ) -> None:
        super().__init__(status, detail)
        self.value, self.limit, self.retry = value, limit, retry


Document = dict[str, Any]


def of_error(error: DueqError) -> Document:
    """Return the problem that an exception of the SDK is."""
    kind = _named(type(error))
    status = next(_STATUS[each] for each in type(error).__mro__ if each in _STATUS)
    document = _document(
        kind.__name__, _first_line(kind), status, str(error) or kind.__name__, error.retriable
    )
    if isinstance(error, Busy):
        document["retry_after"] = error.retry_after
    if isinstance(error, VersionDiffers) and error.present:
        document["present"] = str(error.present)
    if isinstance(error, KeyTaken):
        document |= _known(present=error.present, due_ms=error.due or None)
    if isinstance(error, Unfit):
        document["status"] = error.status
        document |= _known(where=error.where, value=_short(error.value), limit=error.limit)
    if isinstance(error, PartialFailure):
        document["errors"] = [
            {"row": row, "error": type(outcome).__name__, "detail": str(outcome)}
            for row, outcome in enumerate(error.outcomes)
            if isinstance(outcome, DueqError)
        ][: limits.GATEWAY_ITEMS_MAX]
    return document


def of_validation(found: Iterable[Mapping[str, Any]], inside: str = "") -> Document:
    """Return the problem of values that do not fit the model of a request.

    Args:
        found: what is wrong with them.
        inside: the place in the request that places are told from.
    """
    said = [_said(place, each) for place, each in _placed(found, inside)]
    first = said[0]
    detail = "; ".join(f"{each['where']}: {each['detail']}" for each in said[:8])
    document = _document("InvalidRequest", _first_line(InvalidRequest), 422, detail, False)
    document |= _known(where=first["where"], value=first.get("value"), limit=first.get("limit"))
    if len(said) > 1:
        document["errors"] = said[:_VALUE_MAX]
    return document


def of_status(
    status: int, detail: str, value: object = None, limit: object = None, retry: bool = False
) -> Document:
    """Return the problem of a request that did not get as far as the mesh."""
    phrase = HTTPStatus(status).phrase
    document = _document(_HTTP.get(status, phrase.title().replace(" ", "")), phrase, status, detail, retry)
    return document | _known(value=_short(value), limit=limit)


def response(document: Document, headers: Mapping[str, str] | None = None) -> Response:
    """Return a problem as the answer."""
    sent = dict(headers or {})
    if "retry_after" in document:
        sent["retry-after"] = str(max(1, math.ceil(document["retry_after"])))
    return JSONResponse(document, document["status"], sent, MEDIA_TYPE)


def raw(document: Document) -> bytes:
    """Return a problem as bytes."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def install(app: FastAPI) -> None:
    """Have every error of an application answered as a problem."""
    app.add_exception_handler(DueqError, _on_error)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(ValidationError, _on_model)
    app.add_exception_handler(ClientDisconnect, _on_gone)
    app.add_exception_handler(Exception, _on_defect)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DueqError)
    return response(of_error(error))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, Refusal):
        document = of_status(error.status_code, error.detail, error.value, error.limit, error.retry)
    elif error.status_code == 404:
        document = of_status(404, f"there is nothing at {request.url.path}", request.url.path)
    elif error.status_code == 405:
        document = of_status(405, f"{request.method} is not for {request.url.path}", request.method)
        # Names of headers in lower case: the route says of itself what it allows, as `Allow`.
        said = {name.lower(): value for name, value in (error.headers or {}).items()}
        return response(document, said | _allowed(request))
    else:
        document = of_status(error.status_code, error.detail)
    return response(document, error.headers)


def _allowed(request: Request) -> dict[str, str]:
    """All methods of a path: each route knows its own ones only, and several may share a path."""
    path = request.scope["path"]
    found = set()
    for method in _METHODS:
        asked = {"type": "http", "method": method, "path": path, "headers": []}
        # Folders of files say themselves what is allowed there.
        routes = (route for route in request.app.router.routes if not isinstance(route, Mount))
        if any(route.matches(dict(asked))[0] is Match.FULL for route in routes):
            found.add(method)
    if "GET" in found and is_read(path):
        found.add("HEAD")
    return {"allow": ", ".join(sorted(found))} if found else {}


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return response(of_validation(error.errors()))


async def _on_model(request: Request, error: Exception) -> Response:
    assert isinstance(error, ValidationError)
    return response(of_validation(error.errors(), "body"))


async def _on_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it: the client has gone


async def _on_defect(request: Request, error: Exception) -> Response:
    log.error("gateway.request_broken", method=request.method, path=request.url.path, error=repr(error))
    return response(
        _document(
            "Broken", _first_line(errors.Broken), 500, "a defect of the gateway; its log says more", False
        )
    )


def _named(kind: type[DueqError]) -> type[DueqError]:
    """The exception of the SDK that an exception is a case of."""
    return next(each for each in kind.__mro__ if each.__module__ == errors.__name__)


def _first_line(kind: type[DueqError]) -> str:
    return (kind.__doc__ or kind.__name__).splitlines()[0]


def _document(error: str, title: str, status: int, detail: str, retry: bool) -> Document:
    return {
        "type": f"urn:dueq:error:{error}",
        "title": title,
        "status": status,
        "detail": detail,
        "error": error,
        "retry": retry,
    }


def _known(**fields: object) -> Document:
    return {name: value for name, value in fields.items() if value is not None}


def _placed(
    found: Iterable[Mapping[str, Any]], inside: str
) -> Iterator[tuple[tuple[Any, ...], Mapping[str, Any]]]:
    """Faults with their places. A value of several kinds has a fault of each, at a place that ends in the kind."""
    faults = [((inside, *each["loc"]) if inside else tuple(each["loc"]), each) for each in found]
    kinds = Counter(place[:-1] for place, _ in faults if place and place[-1] in _KINDS)
    for place, each in faults:
        yield (place[:-1] if kinds[place[:-1]] > 1 and place[-1] in _KINDS else place), each


def _said(place: tuple[Any, ...], found: Mapping[str, Any]) -> Document:
    where = ".".join(str(part) for part in place) or "body"
    context = found.get("ctx") or {}
    limit = next((context[name] for name in _LIMITS if name in context), None)
    return {"where": where, "detail": found["msg"]} | _known(value=_short(found.get("input")), limit=limit)


_KINDS: Final = ("int", "float", "str", "list[str]")
_LIMITS: Final = ("le", "ge", "lt", "gt", "max_length", "min_length", "expected", "pattern")


def _short(value: object) -> object:
    """A refused value as an answer shows it: never longer than some line."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 1 << 53:
        return value
    text = value if isinstance(value, str) else repr(value)
    return text[:_VALUE_MAX].encode("utf-8", "replace").decode()

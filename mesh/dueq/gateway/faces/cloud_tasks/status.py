"""Errors as google.rpc.Status, by the codes that the product's own errors correspond to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, Final

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from dueq import errors
from dueq.errors import DueqError
from dueq.gateway import problems
from dueq.gateway.logs import log


class Code(IntEnum):
    """google.rpc.Code: the codes that are used here."""

    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DEADLINE_EXCEEDED = 4


_HTTP: Final = {
    Code.INVALID_ARGUMENT: 400,
    Code.FAILED_PRECONDITION: 400,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.ABORTED: 409,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.INTERNAL: 500,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}
"""The HTTP status of a code, as google/rpc/code.proto has it."""
_CODES: Final = {
    400: Code.INVALID_ARGUMENT,
    408: Code.DEADLINE_EXCEEDED,
    413: Code.INVALID_ARGUMENT,
    415: Code.INVALID_ARGUMENT,
    422: Code.INVALID_ARGUMENT,
}
_OF_ERRORS: Final[dict[type[DueqError], Code]] = {
    errors.InvalidRequest: Code.INVALID_ARGUMENT,
    errors.TopicNotFound: Code.NOT_FOUND,
    errors.MessageNotFound: Code.NOT_FOUND,
    errors.TopicExists: Code.ALREADY_EXISTS,
    errors.NotAllowed: Code.PERMISSION_DENIED,
    errors.Refused: Code.FAILED_PRECONDITION,
    errors.Busy: Code.RESOURCE_EXHAUSTED,
    errors.DiskFull: Code.RESOURCE_EXHAUSTED,
    errors.Unavailable: Code.UNAVAILABLE,
    errors.OutcomeUnknown: Code.DEADLINE_EXCEEDED,
    errors.NotYetApplied: Code.DEADLINE_EXCEEDED,
    errors.PartialFailure: Code.UNAVAILABLE,
    errors.DueqError: Code.INTERNAL,
}


class RpcError(Exception):
    """A request that fails with a code and a text."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


class RpcRoute(APIRoute):
    """A route whose errors are google.rpc.Status."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await answer(request)
            except RpcError as error:
                return status(error.code, str(error))
            except DueqError as error:
                kind = next(_OF_ERRORS[each] for each in type(error).__mro__ if each in _OF_ERRORS)
                return status(kind, str(error))
            except ValidationError as error:
                return status(Code.INVALID_ARGUMENT, problems.of_validation(error.errors())["detail"])
            except HTTPException as error:
                return status(_CODES.get(error.status_code, Code.INTERNAL), error.detail)
            except ClientDisconnect:
                raise  # that is no defect
            except Exception as error:
                log.error(
                    "cloud_tasks.request_broken",
                    method=request.method,
                    path=request.url.path,
                    error=repr(error),
                )
                return status(Code.INTERNAL, "a defect of the gateway; its log says more")

        return handler


def status(code: Code, text: str) -> Response:
    """Return an error as the answer."""
    document = {"code": _HTTP[code], "message": text, "status": code.name}
    return JSONResponse({"error": document}, _HTTP[code])

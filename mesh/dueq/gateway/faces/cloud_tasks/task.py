"""A task: the document of the protocol, the message that it is, and the record of its attempts.

The message's payload is JSON, so that everybody who looks at the topic can read what will be sent. The results of the
attempts so far stand at the end of the reason with which the message was given back last.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pydantic import Field

from dueq import limits
from dueq.gateway import instants
from dueq.gateway.faces.cloud_tasks import wire
from dueq.gateway.faces.cloud_tasks.issuer import Identity
from dueq.gateway.faces.cloud_tasks.names import QueueName
from dueq.gateway.faces.cloud_tasks.status import Code, RpcError
from dueq.gateway.faces.cloud_tasks.wire import HttpMethod, Part, Shape, View
from dueq_codecs.documents import decode_document
from dueq_codecs.endpoint import fault_of_url

REASON_BYTES_MAX: Final = 1024
"""Longest reason that a message keeps."""
_ATTEMPTS: Final = re.compile(
    r" \[sent (?P<sent>\d+), answered (?P<answered>\d+) with (?P<http>\d+);"
    r" first sent (?P<first>\d+); (?P<answers>\d+) answers\]\Z",
    re.ASCII,
)
DEADLINE_MS: Final = (15_000, 30 * 60_000)
"""Shortest and longest time that a task gets for its answer."""
DEFAULT_DEADLINE_MS: Final = 600_000
_WITH_BODY: Final = frozenset({HttpMethod.POST, HttpMethod.PUT, HttpMethod.PATCH})
_HEADERS_BYTES_MAX: Final = 80 << 10
_EMAIL_MAX: Final = 256
_AUDIENCE_MAX: Final = 2083


class HttpRequest(Part):
    """The request that is sent."""

    url: str = ""
    http_method: int | str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    body: str | None = None
    oauth_token: dict[str, Any] | None = None
    oidc_token: dict[str, Any] | None = None


class TaskDocument(Part):
    """A task as a request has it. Fields that belong to answers are ignored."""

    name: str = ""
    http_request: HttpRequest | None = None
    app_engine_http_request: dict[str, Any] | None = None
    schedule_time: str | None = None
    create_time: str | None = None
    dispatch_deadline: str | None = None
    dispatch_count: int | None = None
    response_count: int | None = None
    first_attempt: dict[str, Any] | None = None
    last_attempt: dict[str, Any] | None = None
    view: int | str | None = None
    retry_config: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """The request of a task, and how long its answer is waited for.

    Attributes:
        url: where to.
        method: of HTTP.
        headers: of the request.
        body: its bytes.
        deadline_ms: how long the receiver gets.
        created_ms: when the task was made, Unix ms.
        identity: for whom its requests have a token; None: they have none.
    """

    url: str
    method: HttpMethod
    headers: Mapping[str, str]
    body: bytes
    deadline_ms: int
    created_ms: int
    identity: Identity | None = None

    @classmethod
    def of(cls, given: TaskDocument, now_ms: int, issues: bool) -> Task:
        """Return the task that a request asks for.

        Args:
            given: what it says of it.
            now_ms: mesh time, Unix ms.
            issues: whether this gateway issues tokens of OpenID Connect.

        Raises:
            RpcError: INVALID_ARGUMENT, or UNIMPLEMENTED for targets and tokens of Google's own.
        """
        asked = given.http_request
        if given.app_engine_http_request is not None:
            raise RpcError(Code.UNIMPLEMENTED, "appEngineHttpRequest is not implemented: use httpRequest")
        if asked is None:
            raise RpcError(Code.INVALID_ARGUMENT, "a task has an httpRequest")
        if asked.oauth_token:
            text = "httpRequest.oauthToken is not implemented: use oidcToken, or httpRequest.headers"
            raise RpcError(Code.UNIMPLEMENTED, text)
        identity = _identity(asked.oidc_token) if asked.oidc_token else None
        if identity is not None and not issues:
            text = (
                "httpRequest.oidcToken is not implemented: this gateway has no issuer (dueq gateway --oidc-issuer); "
                "httpRequest.headers takes an authorization of your own"
            )
            raise RpcError(Code.UNIMPLEMENTED, text)
        if given.retry_config:
            raise RpcError(Code.UNIMPLEMENTED, "retryConfig of a task is not implemented: the queue has one")
        fault = fault_of_url(asked.url)
        if fault is not None:
            raise RpcError(Code.INVALID_ARGUMENT, f"httpRequest.url: {fault}")
        method = wire.enum(HttpMethod, asked.http_method or 0, "httpRequest.httpMethod") or HttpMethod.POST
        body = wire.data(asked.body or "", "httpRequest.body")
        if body and method not in _WITH_BODY:
            raise RpcError(Code.INVALID_ARGUMENT, f"a {method.name} request has no body")
        size = sum(len(name) + len(value) for name, value in asked.headers.items())
        if size > _HEADERS_BYTES_MAX:
            raise RpcError(
                Code.INVALID_ARGUMENT, f"headers have at most {_HEADERS_BYTES_MAX} bytes together, not {size}"
            )
        for name, value in asked.headers.items():
            if not sendable(name, value):
                raise RpcError(Code.INVALID_ARGUMENT, f"{name!r:.80}: {value!r:.80} is no header of HTTP")
        deadline_ms = DEFAULT_DEADLINE_MS
        if given.dispatch_deadline:
            deadline_ms = wire.duration_ms(given.dispatch_deadline, "dispatchDeadline", *DEADLINE_MS)
        return cls(asked.url, method, asked.headers, body, deadline_ms, now_ms, identity)

    @classmethod
    def of_payload(cls, payload: bytes) -> Task:
        """Read a task.

        Raises:
            ValueError: the payload is none, or one that cannot be sent.
        """
        try:
            found = decode_document(payload.decode())
            oidc = found.get("oidc")
            made = cls(
                str(found["url"]), HttpMethod[found["method"]], dict(found["headers"]),
                b64decode(found["body"]), int(found["deadline_ms"]), int(found["created_ms"]),
                Identity(str(oidc["email"]), str(oidc["audience"])) if oidc else None,
            )  # fmt: skip
            sound = all(sendable(name, value) for name, value in made.headers.items())
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            # The error may quote the payload, and this becomes a reason, which is short.
            raise ValueError(f"the payload is no task: {error!r:.200}") from None
        low_ms, high_ms = DEADLINE_MS
        sound &= fault_of_url(made.url) is None and low_ms <= made.deadline_ms <= high_ms
        if not sound or not 0 <= made.created_ms <= limits.DUE_MS_MAX:
            raise ValueError("the payload is no task: its URL, a header or an instant cannot be")
        return made

    def payload(self) -> bytes:
        """Return it as the payload of a message.

        Raises:
            RpcError: INVALID_ARGUMENT: it is too long.
        """
        said: dict[str, Any] = {
            "url": self.url, "method": self.method.name, "headers": dict(self.headers),
            "body": b64encode(self.body).decode(), "deadline_ms": self.deadline_ms,
            "created_ms": self.created_ms,
        }  # fmt: skip
        if self.identity is not None:
            said["oidc"] = self.identity._asdict()
        found = json.dumps(said, separators=(",", ":")).encode()
        if len(found) > limits.CLOUD_TASKS_TASK_BYTES_MAX:
            raise RpcError(
                Code.INVALID_ARGUMENT,
                f"a task has at most {limits.CLOUD_TASKS_TASK_BYTES_MAX} bytes, not {len(found)}",
            )
        return found


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts of a task so far; instants are Unix ms, 0: there was none.

    Attributes:
        first_ms: when it was sent for the first time.
        sent_ms: when it was sent last.
        answered_ms: when the last answer came.
        http: status of the last answer of HTTP; 0: there was none.
        answers: how many there were.
    """

    first_ms: int = 0
    sent_ms: int = 0
    answered_ms: int = 0
    http: int = 0
    answers: int = 0

    @classmethod
    def of(cls, reason: str) -> Attempts:
        """Read what the reason of a message says of them."""
        found = _ATTEMPTS.search(reason)
        if found is None:
            return cls()
        return cls(*(int(found[name]) for name in ("first", "sent", "answered", "http", "answers")))

    def reason(self, text: str) -> str:
        """Return a reason that says this too, instants as Unix ms."""
        said = (
            f" [sent {self.sent_ms}, answered {self.answered_ms} with {self.http}; first sent {self.first_ms}; "
            f"{self.answers} answers]"
        )
        return text.encode()[: REASON_BYTES_MAX - len(said)].decode(errors="ignore") + said


class Known(Protocol):
    """A message, as far as an answer shows it."""

    @property
    def id(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def waits_until(self) -> int: ...
    @property
    def due(self) -> int: ...
    @property
    def attempt(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A task that was made just now."""

    id: str
    key: str
    due: int
    attempt: int = 0

    @property
    def waits_until(self) -> int:
        """When it is sent."""
        return self.due


def document(
    name: QueueName, found: Known, task: Task, attempts: Attempts, view: View, shape: Shape
) -> dict[str, Any]:
    """Return a task as answers have it."""
    request: dict[str, Any] = {
        "url": task.url, "httpMethod": shape.enum(task.method), "headers": dict(task.headers),
    }  # fmt: skip
    if view is View.FULL and task.body:
        request["body"] = b64encode(task.body).decode()
    if task.identity is not None:
        email, audience = task.identity
        request["oidcToken"] = {"serviceAccountEmail": email, "audience": audience or task.url}
    shown = {
        "name": name.task(found.key or found.id),
        "httpRequest": request,
        "scheduleTime": instants.text(max(found.waits_until, found.due)),
        "createTime": instants.text(task.created_ms),
        "dispatchDeadline": wire.duration(task.deadline_ms),
        "dispatchCount": found.attempt,
        "responseCount": attempts.answers,
        "view": shape.enum(view),
    }
    if attempts.first_ms:
        shown["firstAttempt"] = {"dispatchTime": instants.text(attempts.first_ms)}
    if attempts.sent_ms:
        last: dict[str, Any] = {"dispatchTime": instants.text(attempts.sent_ms)}
        if attempts.answered_ms:
            last["responseTime"] = instants.text(attempts.answered_ms)
            last["responseStatus"] = response_status(attempts.http)
        shown["lastAttempt"] = last
    return shown


def _identity(given: Mapping[str, Any]) -> Identity:
    """Read an OidcToken; enums and names of the protocol come in either spelling."""
    found = {wire.camel(name): value for name, value in given.items()}
    email, audience = found.pop("serviceAccountEmail", ""), found.pop("audience", "")
    for value, most in ((email, _EMAIL_MAX), (audience, _AUDIENCE_MAX)):
        if not isinstance(value, str) or len(value) > most:
            text = f"httpRequest.oidcToken has texts of at most {most} characters, not {value!r:.80}"
            raise RpcError(Code.INVALID_ARGUMENT, text)
    if not email or found:
        text = "httpRequest.oidcToken has a serviceAccountEmail, perhaps an audience, and nothing else"
        raise RpcError(Code.INVALID_ARGUMENT, text)
    return Identity(email, audience)


_CODES: Final = {400: 3, 401: 16, 403: 7, 404: 5, 409: 10, 416: 11, 429: 8, 499: 1, 501: 12, 503: 14, 504: 4}
"""google.rpc.Code of a status of HTTP, as google/rpc/code.proto has them."""


def response_status(http: int) -> dict[str, Any]:
    """Return the google.rpc.Status of an answer of HTTP."""
    code = 0 if 200 <= http < 300 else _CODES.get(http, 13 if http >= 500 else 2)
    return {"code": code, "message": f"HTTP status code {http}"}


def sendable(name: str, value: str) -> bool:
    """Return whether this is a header of HTTP."""
    return (
        name.isascii()
        and value.isascii()
        and value.isprintable()
        and bool(name)
        and all(letter.isalnum() or letter in "!#$%&'*+-.^_`|~" for letter in name)
    )

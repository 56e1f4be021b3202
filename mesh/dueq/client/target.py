"""Targets: where one message goes, if not to the URL of its topic's endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dueq.client import times
from dueq.client.times import Seconds
from dueq.errors import InvalidRequest
from dueq_codecs.endpoint import TIMEOUT_MS
from dueq_codecs.target import HEADER, TargetRefused, pack_target, split_target


@dataclass(frozen=True, slots=True)
class Target:
    """Where one message goes, if its topic's endpoint allows targets.

    Attributes:
        url: https:// or http://, at most 2,083 characters.
        method: POST, PUT, PATCH, GET, HEAD, DELETE or OPTIONS.
        headers: of the request, at most 64 KiB; those of the endpoint are not sent to a target.
        deadline: how long the answer may take, seconds (0.1 s to 30 minutes) or timedelta; None: as the endpoint says.
    """

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    deadline: Seconds | None = None

    def around(self, body: bytes, headers: Mapping[str, str] | None = None) -> tuple[bytes, dict[str, str]]:
        """Return payload and headers of a message that has this target: for `schedule`.

        Args:
            body: of the request.
            headers: other headers of the message.

        Raises:
            InvalidRequest: a value is outside its limits.
        """
        deadline_ms = 0
        if self.deadline is not None:
            deadline_ms = times.duration_ms(self.deadline, "the deadline of a target", *TIMEOUT_MS)
        if not isinstance(self.headers, Mapping):
            raise InvalidRequest(f"the headers of a target are a mapping, not {self.headers!r:.80}")
        if not isinstance(body, bytes):
            raise InvalidRequest(f"the body of a target is bytes, not {type(body).__name__}: {body!r:.80}")
        document = {
            "url": self.url,
            "method": self.method,
            "headers": dict(self.headers),
            "deadline_ms": deadline_ms,
        }
        try:
            packed = pack_target(document)
        except TargetRefused as refused:
            raise InvalidRequest(str(refused)) from None
        return packed + body, {**(headers or {}), HEADER: str(len(packed))}

    @classmethod
    def within(cls, payload: bytes, headers: Mapping[str, str]) -> tuple[Target | None, bytes]:
        """Return the target of a message, None if it has none, and the body that is behind it.

        Raises:
            InvalidRequest: its header or the beginning of its payload is not well formed.
        """
        try:
            found, body = split_target(headers, payload)
        except TargetRefused as refused:
            raise InvalidRequest(str(refused)) from None
        if found is None:
            return None, body
        deadline_ms = found["deadline_ms"]
        return cls(
            found["url"], found["method"], found["headers"], deadline_ms / 1000 if deadline_ms else None
        ), body

"""The request that is made of a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import quote

from multidict import CIMultiDict

from dueq import __version__
from dueq.gateway.webhooks.answers import Answer
from dueq.gateway.webhooks.sending import Sender
from dueq.gateway.webhooks.signing import signatures
from dueq_codecs.endpoint import plain, sendable
from dueq_codecs.target import TargetRefused, split_target

_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F)))
"""Characters that stay as they are in the value of a header; all else, and `%`, is percent-encoded UTF-8."""
_SAFE: Final = _PLAIN.replace("%", "")

_OWN: Final = ("user-agent", "accept-encoding")
"""Headers that the gateway sets itself, beside the reserved ones."""


class Sendable(Protocol):
    """A message, as far as a request is made of it."""

    @property
    def id(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def key(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def topic(self) -> str: ...
    @property
    def due(self) -> int: ...
    @property
    def released_at(self) -> int: ...
    @property
    def attempt(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Request:
    """A request to be sent.

    Attributes:
        timeout_s: how long the answer may take.
    """

    method: str
    url: str
    headers: CIMultiDict[str]
    body: bytes
    timeout_s: float

    async def sent_by(self, sender: Sender, whose: str) -> Answer:
        """Send it for an endpoint, and return its answer."""
        return await sender.send(self.method, self.url, self.headers, self.body, self.timeout_s, whose)


def request_of(message: Sendable, endpoint: Mapping[str, Any], now_ms: int) -> Request:
    """Return the request that is sent for a message now (Unix ms).

    Of the headers a later group overrides an earlier one: the message's own, the endpoint's or the target's, and those
    that only the gateway sets.

    Raises:
        TargetRefused: the message has a target that is not well formed, or may not have one.
    """
    own = message.headers
    target, body = split_target(own, message.payload)
    if target is not None and not endpoint["targets"]:
        raise TargetRefused(f"the endpoint {endpoint['name']!r} allows no targets of messages")
    found: CIMultiDict[str] = CIMultiDict({"content-type": "application/octet-stream"})
    for name, value in own.items():
        field = "content-type" if name == "content_type" else name
        if _goes(field):
            found[field] = _encoded(value)
    for name, value in (endpoint if target is None else target)["headers"].items():
        if _goes(name):
            found[name] = value
    at_s = now_ms // 1000
    found["user-agent"] = f"dueq/{__version__}"
    # The reason of a failure is kept as it comes.
    found["accept-encoding"] = "identity"
    found["webhook-id"] = message.id
    found["webhook-timestamp"] = str(at_s)
    found["webhook-signature"] = signatures(endpoint["secrets"], message.id, at_s, body, now_ms)
    found["dueq-topic"] = message.topic
    found["dueq-due"] = str(message.due)
    found["dueq-released-at"] = str(message.released_at)
    found["dueq-attempt"] = str(message.attempt)
    if message.key:
        found["dueq-key"] = _encoded(message.key)
    if target is None:
        return Request("POST", endpoint["url"], found, body, endpoint["timeout_ms"] / 1000)
    deadline_ms = target["deadline_ms"] or endpoint["timeout_ms"]
    return Request(target["method"], target["url"], found, body, deadline_ms / 1000)


def passes(message: Sendable, wanted: Mapping[str, list[str]]) -> bool:
    """Return whether a message is one that an endpoint is to get."""
    if not wanted:
        return True
    headers = message.headers
    return all(headers.get(name) in words for name, words in wanted.items())


def _goes(header: str) -> bool:
    """Whether a header goes along: what the gateway says itself nobody else says, however it is spelled."""
    return sendable(header) and plain(header) not in _OWN


def _encoded(value: str) -> str:
    return quote(value.strip(), safe=_SAFE)

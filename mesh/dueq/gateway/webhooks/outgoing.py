"""The headers of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote

from multidict import CIMultiDict

from dueq import __version__
from dueq.gateway.webhooks.signing import signatures
from dueq_codecs.endpoint import sendable

_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F)))
"""What stays as it is in the value of a header; all else, and `%`, is percent-encoded UTF-8."""
_SAFE: Final = _PLAIN.replace("%", "")


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


def headers_of(message: Sendable, endpoint: Mapping[str, Any], now_ms: int) -> CIMultiDict[str]:
    """Return the headers of a request that is sent now (Unix ms).

    A later group overrides an earlier one: the message's own, the endpoint's, and those that only the gateway sets.
    """
    found: CIMultiDict[str] = CIMultiDict({"content-type": "application/octet-stream"})
    for name, value in message.headers.items():
        field = "content-type" if name == "content_type" else name
        if sendable(field):
            found[field] = _encoded(value)
    for name, value in endpoint["headers"].items():
        found[name] = value
    at_s = now_ms // 1000
    found["user-agent"] = f"dueq/{__version__}"
    found["webhook-id"] = message.id
    found["webhook-timestamp"] = str(at_s)
    found["webhook-signature"] = signatures(endpoint["secrets"], message.id, at_s, message.payload, now_ms)
    found["dueq-topic"] = message.topic
    found["dueq-due"] = str(message.due)
    found["dueq-released-at"] = str(message.released_at)
    found["dueq-attempt"] = str(message.attempt)
    if message.key:
        found["dueq-key"] = _encoded(message.key)
    return found


def passes(message: Sendable, wanted: Mapping[str, list[str]]) -> bool:
    """Return whether a message is one that an endpoint is to get."""
    if not wanted:
        return True
    headers = message.headers
    return all(headers.get(name) in words for name, words in wanted.items())


def _encoded(value: str) -> str:
    return quote(value.strip(), safe=_SAFE)

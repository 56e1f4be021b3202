"""Endpoints: where gateways send the messages of a topic, as a document among the topic's settings.

The coordinator keeps the whole document. Everybody else sees the document of `shown`: it has no secrets and no values
of headers. A broker tells the whole one only to those who ask for endpoints.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

URL_MAX: Final = 1024
"""Longest URL of an endpoint, characters."""
SECRETS_MAX: Final = 4
"""Most secrets of an endpoint: messages are signed with each of them."""
SECRET_BYTES: Final = (24, 64)
"""Shortest and longest secret, as Standard Webhooks has them."""
PRIVATE: Final = "whsk_"
"""How a private key of ed25519 begins, which is used in place of a secret."""
_SEED_BYTES: Final = 32
HEADERS_BYTES_MAX: Final = 1024
"""Most bytes of the headers that every request of an endpoint carries, names included."""
FILTER_BYTES_MAX: Final = 512
"""Longest filter of an endpoint, as JSON."""
TIMEOUT_MS: Final = (100, 1_800_000)
"""Shortest and longest time that a receiver gets for an answer, ms."""
IN_FLIGHT_MAX: Final = 1024
"""Most requests of one gateway to one endpoint at a time."""
DISABLED_MAX: Final = 200
"""Longest reason why an endpoint is disabled, characters."""

_SEALED: Final = re.compile(
    r"sealed\.([0-9a-f]{8})\.([0-9a-f]{12}|whpk_[A-Za-z0-9+/]{43}=|)\."
    r"((?:[A-Za-z0-9+/]{4}){5,511}(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==))\Z"
)
"""A text that is sealed: by which key, the id of a secret (of a header none), and the bytes, which are 16 more: never
fewer than 16, and always whole base64."""
_SEAL_BYTES: Final = 16

_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,255}\Z")  # not . or ..: in a URL these are folders
_FIELD: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_MARK: Final = re.compile(r"[^A-Za-z0-9]")
_VALUE: Final = re.compile(r"[\x20-\x7e]*\Z")
_RESERVED: Final = re.compile(
    r"(webhook-.*|dueq[-_].*|host|content-length|transfer-encoding|connection|upgrade|te|trailer|expect|keep-alive|"
    r"proxy-.*)\Z",
    re.IGNORECASE,
)
_NUMBERS: Final = {
    "version": (1, (1 << 53) - 1, ""),
    "timeout_ms": (*TIMEOUT_MS, " ms"),
    "in_flight": (1, IN_FLIGHT_MAX, " requests"),
}
_OPEN: Final = {"name", "url", "filter", "targets", "disabled", *_NUMBERS}
_HIDDEN: Final = {"secrets", "headers"}
_SHOWN: Final = {"secret_ids", "header_names"}
"""The fields that stand for the hidden parts."""


def fault_of_endpoint(value: object) -> str | None:
    """Say what is wrong with the document of an endpoint, whole or as it is shown, or None; null: there is none."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        return f"endpoint is an object or null, not {value!r:.80}"
    whole = "secrets" in value
    names = _OPEN | (_HIDDEN if whole else _SHOWN)
    if set(value) != names:
        odd = sorted(set(value) ^ names, key=str)
        return f"endpoint has {', '.join(sorted(names))}; missing or unknown are {', '.join(map(str, odd))[:200]}"
    if not isinstance(value["name"], str) or not _NAME.match(value["name"]):
        return (
            "the name of an endpoint has 1 to 255 characters of A-Z a-z 0-9 . _ -, and is not . or .., "
            f"unlike {value['name']!r:.80}"
        )
    for name, (low, high, unit) in _NUMBERS.items():
        if type(value[name]) is not int or not low <= value[name] <= high:
            return f"{name} of endpoint is {low} to {high}{unit}, not {value[name]!r:.80}"
    if type(value["targets"]) is not bool:
        return f"targets of endpoint is true or false, not {value['targets']!r:.80}"
    if not isinstance(value["disabled"], str) or len(value["disabled"]) > DISABLED_MAX:
        return f"disabled of endpoint is a text of at most {DISABLED_MAX} characters"
    fault = fault_of_url(value["url"]) or _fault_of_filter(value["filter"])
    if fault is None and whole:
        fault = _fault_of_secrets(value["secrets"]) or fault_of_headers(value["headers"])
    return fault


def shown(endpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document without its secrets and the values of its headers."""
    if "secrets" not in endpoint:
        return dict(endpoint)
    return {
        **{name: value for name, value in endpoint.items() if name not in _HIDDEN},
        "secret_ids": [[secret_id(secret), until_ms] for secret, until_ms in endpoint["secrets"]],
        "header_names": sorted(endpoint["headers"]),
    }


def secret_id(secret: str) -> str:
    """Return a name of a secret that does not tell it: 12 hex digits, or the public key of a private one."""
    if is_sealed(secret):
        return sealed_parts(secret)[1]
    if secret.startswith(PRIVATE):
        return "whpk_" + b64encode(key_of(secret)[_SEED_BYTES:]).decode()
    return hashlib.sha256(secret.encode()).hexdigest()[:12]


def is_sealed(text: str) -> bool:
    """Return whether a secret, or the value of a header, is sealed: only a holder of the key can read it."""
    return _SEALED.match(text) is not None


def all_sealed(endpoint: Mapping[str, Any]) -> bool:
    """Return whether all secrets of a document, and the values of its headers, are sealed; empty ones need no seal."""
    texts = [*(secret for secret, _ in endpoint["secrets"]), *endpoint["headers"].values()]
    return all(is_sealed(text) for text in texts if text)


def sealed_text(key: str, name: str, data: bytes) -> str:
    """Return a sealed text: by this key, of the secret of this id ("": of a header)."""
    return f"sealed.{key}.{name}.{b64encode(data).decode()}"


def sealed_parts(text: str) -> tuple[str, str, bytes]:
    """Take a sealed text apart: what `sealed_text` was given."""
    found = _SEALED.match(text)
    if found is None:
        raise ValueError("this is no sealed text")
    return found[1], found[2], b64decode(found[3])


def key_of(secret: str) -> bytes:
    """Return the bytes of a secret: of `whsec_` and base64, or `whsk_` and base64, a private key of ed25519.

    Raises:
        ValueError: it is no such secret, or too short or too long; the text does not tell it.
    """
    low, high = SECRET_BYTES
    words = f"a secret is whsec_ and the base64 of {low} to {high} bytes"
    if not isinstance(secret, str) or not secret.startswith(("whsec_", PRIVATE)):
        raise ValueError(words)
    if secret.startswith(PRIVATE):
        low = high = 2 * _SEED_BYTES
        words = f"a private key is {PRIVATE} and the base64 of {low} bytes: seed and public key"
    try:
        key = b64decode(secret.partition("_")[2], validate=True)
    except ValueError:
        raise ValueError(words) from None
    if not low <= len(key) <= high:
        raise ValueError(f"{words}, not of {len(key)}")
    return key


def fault_of_url(url: object, most: int = URL_MAX) -> str | None:
    """Say why an endpoint cannot have this URL, or None. Which addresses are allowed is decided when it is used."""
    if not isinstance(url, str) or not 1 <= len(url) <= most or not re.fullmatch(r"[\x21-\x7e]+", url):
        return f"a URL has 1 to {most} ASCII characters without spaces, not {url!r:.200}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        return f"{url!r:.200} is no URL: {error}"
    if parts.scheme not in ("http", "https"):
        return f"a URL begins with https:// or http://, not as {url!r:.200}"
    if not host or port == 0:
        return f"a URL names a host and, if any, a port of 1 to 65535, not as {url!r:.200}"
    if "@" in parts.netloc:
        return "a URL has no user and no password: use headers"
    if "#" in url or "\\" in url:
        return f"a URL has no # and no \\, not as {url!r:.200}"
    return None


def fault_of_headers(headers: object, most: int = HEADERS_BYTES_MAX) -> str | None:
    """Say what is wrong with the headers that every request carries, or None."""
    if not isinstance(headers, Mapping):
        return f"headers are an object, not {type(headers).__name__}"
    for name, value in headers.items():
        if not isinstance(name, str) or not _FIELD.match(name):
            return f"{name!r:.80} is no name of an HTTP header"
        if reserved(name):
            return f"the header {name} is not to be set: the gateway sets it itself"
        if not isinstance(value, str) or not _VALUE.match(value):
            return f"the value of the header {name} is not printable ASCII text"
    size = sum(len(name) + _length(value) for name, value in headers.items())
    return f"headers have at most {most} bytes, not {size}" if size > most else None


def _length(value: str) -> int:
    """How long the value of a header is, opened."""
    return len(sealed_parts(value)[2]) - _SEAL_BYTES if is_sealed(value) else len(value)


def reserved(header: str) -> bool:
    """Return whether a header is one that only the gateway sets."""
    return _RESERVED.match(header) is not None


def plain(header: str) -> str:
    """Return the name under which a receiver may see a header, with hyphens and in lower case.

    CGI and WSGI make one character of all that is no letter and no digit: `webhook_id` would be seen as `webhook-id`.
    """
    return _MARK.sub("-", header).lower()


def sendable(header: str) -> bool:
    """Return whether a header can be sent as one of HTTP, and no receiver takes it for one of the gateway."""
    return _FIELD.match(header) is not None and not reserved(plain(header))


def _fault_of_secrets(secrets: object) -> str | None:
    if not isinstance(secrets, list) or not 1 <= len(secrets) <= SECRETS_MAX:
        return f"an endpoint has 1 to {SECRETS_MAX} secrets"
    for pair in secrets:
        if not isinstance(pair, list) or len(pair) != 2 or type(pair[1]) is not int or pair[1] < 0:
            return "a secret of an endpoint is itself, and until when it is used (Unix ms; 0: for good)"
        if isinstance(pair[0], str) and is_sealed(pair[0]):
            continue
        try:
            key_of(pair[0])
        except ValueError as error:
            return str(error)
    return None


def _fault_of_filter(value: object) -> str | None:
    if not isinstance(value, Mapping):
        return f"filter of endpoint is an object, not {value!r:.80}"
    for name, words in value.items():
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            return f"filter of endpoint has a list of values for the header {name!r:.80}, not {words!r:.80}"
    size = len(json.dumps(value))
    return (
        f"filter of endpoint has at most {FILTER_BYTES_MAX} bytes, not {size}"
        if size > FILTER_BYTES_MAX
        else None
    )

"""Topics, counts, choices and endpoints that callers give, checked; each refusal names the value and the limit."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any, Final, TypeVar

import numpy as np

from dueq import limits
from dueq.client.core.ports.shared_body import NamedBody
from dueq.errors import InvalidRequest

Payload = bytes | bytearray | memoryview | NamedBody
ENDPOINTS_VARIABLE: Final = "DUEQ_ENDPOINTS"
KINDS: Final = ("timeline", "priority", "fair")
NO_NUMBERS: Final = (bool, np.timedelta64)
"""An int is one of them by its class, and a length of time of NumPy, too, whatever its unit is."""
_T = TypeVar("_T")
_ENDPOINT = re.compile(r"tcp://(?:[^:\s]+|\[[0-9a-fA-F:.%\w]+\]):(?P<port>[0-9]{1,5})|ipc://\S+")
_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{limits.TOPIC_NAME_MAX}}}", re.ASCII)


def shown(value: object) -> str:
    """Return a value as an error shows it: of a long one the beginning."""
    try:
        return f"{value!r:.80}"
    except ValueError:  # an int with more digits than Python converts
        return "a number of very many digits"


def one_of(value: str, name: str, allowed: Sequence[str]) -> str:
    """Return a value that is one of these.

    Raises:
        InvalidRequest: it is none of them.
    """
    if not isinstance(value, str) or value not in allowed:
        raise InvalidRequest(f"{name} is one of {', '.join(allowed)}, not {value!r:.200}")
    return value


def unicode_text(value: str, what: str) -> str:
    """Return a text that is Unicode, so that a frame can hold it: one of `sys.argv`, or of JSON, may be none.

    Raises:
        InvalidRequest: it is none.
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the {what} {value!r:.80} is not Unicode text: {error.reason}") from None
    return value


def rows_of(value: Iterable[_T], what: str) -> Iterable[_T]:
    """Return what has a value for each row.

    Raises:
        InvalidRequest: it has no rows.
    """
    try:
        iter(value)
    except TypeError:
        raise InvalidRequest(f"{what} are many, one for each row, not {value!r:.80}") from None
    return value


def plain(value: Any) -> Any:
    """Return a number of NumPy as Python's own, which JSON can say; anything else as it is."""
    if isinstance(value, np.integer | np.floating) and not isinstance(value, NO_NUMBERS):
        return value.item()
    return value


def flag(value: bool, what: str) -> bool:
    """Return a bool.

    Raises:
        InvalidRequest: it is none.
    """
    if not isinstance(value, bool):
        raise InvalidRequest(f"{what} is True or False, not {value!r:.80}")
    return value


def callback(value: Callable[..., object] | None, what: str) -> None:
    """Check what is to be called.

    Raises:
        InvalidRequest: it cannot be called, and is not None.
    """
    if value is not None and not callable(value):
        raise InvalidRequest(f"{what} is a function, or None, not {value!r:.80}")


def detached(value: bool, name: str | None) -> bool:
    """Return whether a consumer's leases are detached.

    Raises:
        InvalidRequest: it is no bool, or the consumer has a name.
    """
    if flag(value, "detached") and name is not None:
        raise InvalidRequest(f"leases of a consumer with a name are not detached: {name!r:.80}")
    return value


def topic_name(name: str) -> str:
    """Check a topic's name.

    Raises:
        InvalidRequest: it is not 1–255 of `A-Z a-z 0-9 . _ -`.
    """
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        raise InvalidRequest(
            f"a topic's name has 1–{limits.TOPIC_NAME_MAX} characters of A-Z a-z 0-9 . _ -, not {name!r:.300}"
        )
    return name


def count(value: int, what: str, low: int, high: int) -> int:
    """Check a whole number.

    Raises:
        InvalidRequest: it is no int, or outside low … high.
    """
    if not isinstance(value, Integral) or isinstance(value, NO_NUMBERS) or not low <= value <= high:
        raise InvalidRequest(f"{what} is a whole number from {low} to {high}, not {shown(value)}")
    return int(value)


def endpoint_list(endpoints: str | Sequence[str] | None) -> list[str]:
    """Check endpoints; None takes them from DUEQ_ENDPOINTS (separated by commas).

    Raises:
        InvalidRequest: there is none, or one is not like tcp://HOST:PORT.
    """
    if endpoints is None:
        endpoints = os.environ.get(ENDPOINTS_VARIABLE, "")
        if not endpoints.strip():
            raise InvalidRequest(f"no endpoints: pass them, or set {ENDPOINTS_VARIABLE}=tcp://HOST:PORT[,…]")
    if isinstance(endpoints, str):
        endpoints = endpoints.split(",")
    if isinstance(endpoints, bytes) or not isinstance(endpoints, Iterable):
        raise InvalidRequest(f"endpoints are a str, or a list of them, not {endpoints!r:.80}")
    taken = [endpoint.strip() if isinstance(endpoint, str) else endpoint for endpoint in endpoints]
    for endpoint in taken:
        found = _ENDPOINT.fullmatch(endpoint) if isinstance(endpoint, str) else None
        if found is None or int(found["port"] or 1) not in range(1, 1 << 16):
            raise InvalidRequest(f"an endpoint is tcp://HOST:PORT, not {endpoint!r:.300}")
        unicode_text(endpoint, "endpoint")
    if not taken:
        raise InvalidRequest("the list of endpoints is empty")
    return list(dict.fromkeys(taken))

"""Targets: where one message goes, if not to the URL of its topic's endpoint.

A target is a document at the beginning of the payload, so a reader who may not see payloads cannot see it either. The
header `dueq_target` says how many bytes it has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from dueq_codecs.documents import decode_document
from dueq_codecs.endpoint import TIMEOUT_MS, fault_of_headers, fault_of_url

HEADER: Final = "dueq_target"
METHODS: Final = ("POST", "PUT", "PATCH", "GET", "HEAD", "DELETE", "OPTIONS")
URL_MAX: Final = 2083
"""Longest URL of a target, characters."""
HEADERS_BYTES_MAX: Final = 64 << 10
"""Most bytes of the headers of a target, names included."""
TARGET_BYTES_MAX: Final = 96 << 10
"""Longest document of a target."""
_NAMES: Final = {"url", "method", "headers", "deadline_ms"}


class TargetRefused(ValueError):
    """It is no target; the text says why."""


def pack_target(target: Mapping[str, Any]) -> bytes:
    """Return the beginning of a payload.

    Args:
        target: of `url`, `method`, `headers` by name, and `deadline_ms`: how long an answer may take, 0: as the
            endpoint says.

    Raises:
        TargetRefused
    """
    fault = fault_of_target(target)
    if fault is not None:
        raise TargetRefused(fault)
    found = json.dumps(target, sort_keys=True, separators=(",", ":")).encode()
    if len(found) > TARGET_BYTES_MAX:
        raise TargetRefused(f"a target has at most {TARGET_BYTES_MAX} bytes, not {len(found)}")
    return found


def split_target(headers: Mapping[str, str], payload: bytes) -> tuple[dict[str, Any] | None, bytes]:
    """Return the target of a message, None if it has none, and the rest of its payload.

    Raises:
        TargetRefused: its header or the beginning of its payload is not well formed.
    """
    said = headers.get(HEADER)
    if said is None:
        return None, payload
    if not (
        said.isascii()
        and said.isdecimal()
        and len(said) <= 6
        and int(said) <= min(len(payload), TARGET_BYTES_MAX)
    ):
        raise TargetRefused(f"{HEADER} is the length of a target in the payload, not {said!r:.80}")
    size = int(said)
    try:
        target = decode_document(payload[:size].decode())
    except ValueError as error:
        raise TargetRefused(f"a target is JSON: {error}") from None
    fault = fault_of_target(target)
    if fault is not None:
        raise TargetRefused(fault)
    return target, payload[size:]


def fault_of_target(target: object) -> str | None:
    """Say what is wrong with the document of a target, or None."""
    if not isinstance(target, Mapping) or set(target) != _NAMES:
        return f"a target has {', '.join(sorted(_NAMES))}, not {target!r:.200}"
    if target["method"] not in METHODS:
        return f"the method of a target is one of {', '.join(METHODS)}, not {target['method']!r:.80}"
    low, high = TIMEOUT_MS
    deadline_ms = target["deadline_ms"]
    if type(deadline_ms) is not int or (deadline_ms and not low <= deadline_ms <= high):
        return f"the deadline of a target is {low} to {high} ms, or 0, not {deadline_ms!r:.80}"
    return fault_of_url(target["url"], URL_MAX) or fault_of_headers(target["headers"], HEADERS_BYTES_MAX)

"""The terms of a recurrence: when it fires, and what it does about missed ticks and unfinished messages.

Terms travel and are kept as a JSON object, the *document*. Only what differs from the defaults is in it, so equal terms
have equal documents. A change of terms is a document of what shall be different.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import Any, Final

from dueq.errors import InvalidRequest
from dueq_codecs.documents import decode_document

_RULES: Final = ("cron", "every_ms", "at_ms")
"""The three ways to say when; terms have one of them."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a recurrence says about its ticks. All instants are Unix ms.

    Attributes:
        cron: a cron line of five fields, or of six with the seconds first; "" where it is none.
        every_ms: a period; 0 where it is none.
        at_ms: instants, ascending; empty where it is no list.
        zone: the time zone of the cron line, by its IANA name.
        start_ms, end_ms: no tick before the first, none at or after the second; 0: no bound.
        jitter_ms: a message is due up to this long after its tick.
        missed: how many missed ticks are made up for, the latest ones.
        overlap: "allow", or "skip" a tick while a message of the recurrence is unfinished.
        headers: of its messages.
        rank, group: of its messages.
        body: SHA-256 of the shared body that its messages have as their payload, in hex; "": they have a payload of
            the recurrence.
    """

    cron: str = ""
    every_ms: int = 0
    at_ms: tuple[int, ...] = ()
    zone: str = "UTC"
    start_ms: int = 0
    end_ms: int = 0
    jitter_ms: int = 0
    missed: int = 1
    overlap: str = "allow"
    headers: dict[str, str] = field(default_factory=dict, hash=False)
    rank: int = 0
    group: str = ""
    body: str = ""

    @property
    def when(self) -> tuple[object, ...]:
        """All that decides about the ticks, and nothing else."""
        return self.cron, self.every_ms, self.at_ms, self.zone, self.start_ms, self.end_ms

    def document(self) -> dict[str, Any]:
        """Return what differs from the defaults."""
        values = {name: getattr(self, name) for name in _DEFAULTS}
        return {name: value for name, value in values.items() if value != _DEFAULTS[name]}


_DEFAULTS: Final[dict[str, Any]] = asdict(Terms())
_packed: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode
_TYPES: Final = {field.name: type(_DEFAULTS[field.name]) for field in fields(Terms)}


def packed(document: dict[str, Any]) -> str:
    """Return a document as canonical JSON."""
    return _packed(document)


def unpacked(text: str) -> dict[str, Any]:
    """Read a document.

    Raises:
        InvalidRequest: it is no JSON object.
    """
    try:
        return decode_document(text)
    except ValueError as error:
        raise InvalidRequest(
            f"the document of a recurrence is a JSON object, not {text!r:.80}: {error}"
        ) from None


def changed(document: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a document after a change. One that says when to fire replaces all of what was said about that."""
    kept = dict(document)
    if any(change.get(rule) for rule in _RULES):
        for name in (*_RULES, "zone"):
            kept.pop(name, None)
    merged = kept | change
    return {
        name: value for name, value in merged.items() if name not in _DEFAULTS or value != _DEFAULTS[name]
    }


@lru_cache(4096)
def terms_of(text: str) -> Terms:
    """Return the terms that a document says; whether they make sense is not looked at (see `checking`).

    Raises:
        InvalidRequest: it is no document, or says something of the wrong type, or something unknown.
    """
    document = unpacked(text)
    values: dict[str, Any] = {}
    for name, value in document.items():
        kind = _TYPES.get(name)
        if kind is tuple:
            is_list = isinstance(value, list) and all(type(item) is int for item in value)
            value = tuple(value) if is_list else value
        if kind is None or type(value) is not kind:
            raise InvalidRequest(f"the terms of a recurrence have no {name} {value!r:.80}")
        values[name] = value
    return Terms(**values)

"""Questions about messages that are refused, with what was wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dueq import limits
from dueq.core.front.looking import _malformed
from dueq_codecs.messages import LookRequest

_HOUR_MS = 3_600_000


def refused(what: str, document: Any) -> str:
    text = document if isinstance(document, str) else json.dumps(document)
    refusal = _malformed(LookRequest(1, "mail", 1, what, document=text))
    return refusal.text if refusal is not None else ""


def test_what_is_well_formed_is_not_refused() -> None:
    assert refused("seconds", {"from_ms": 0, "until_ms": _HOUR_MS, "after": None}) == ""
    assert refused("seconds", {"from_ms": 0, "until_ms": 1, "after": [5, 1 << 40, "00ff"]}) == ""
    assert refused("leased", {"after": -1}) == ""


@pytest.mark.parametrize(
    ("what", "document", "told"),
    [
        ("seconds", "{", "seconds are"),
        ("seconds", {"from_ms": 0}, "seconds are"),
        ("seconds", {"from_ms": 5, "until_ms": 5, "after": None}, "begin before they end"),
        ("seconds", {"from_ms": True, "until_ms": 5, "after": None}, "begin before they end"),
        (
            "seconds",
            {"from_ms": 0, "until_ms": limits.DUE_MS_MAX + 2, "after": None},
            "begin before they end",
        ),
        ("seconds", {"from_ms": 0, "until_ms": _HOUR_MS + 1, "after": None}, "1 to 3600 seconds"),
        ("seconds", {"from_ms": 0, "until_ms": 5, "after": [0, -2, ""]}, "goes on after a place"),
        ("seconds", {"from_ms": 0, "until_ms": 5, "after": "no"}, "seconds are"),
        ("leased", "", '{"after":KEY}'),
        ("leased", {"after": 1 << 56}, '{"after":KEY}'),
        ("leased", {"after": None}, '{"after":KEY}'),
        ("count", "[" * 60_000, 'a count is {"filter"'),
        ("count", '{"filter":' + "[" * 900 + "]" * 900 + ',"after":null}', 'a count is {"filter"'),
        ("seconds", "[" * 60_000, "seconds are"),
        ("count", {"filter": {"state": "waiting"}, "after": [1.5, 0, ""]}, "not after [1.5, 0, '']"),
        ("count", {"filter": {"state": "waiting"}, "after": [1, 0.5, ""]}, "not after [1, 0.5, '']"),
        ("count", {"filter": {"state": "waiting"}, "after": [True, 0, ""]}, "not after [True, 0, '']"),
        ("seconds", {"from_ms": 0, "until_ms": 5, "after": [0.0, 0, ""]}, "not after [0.0, 0, '']"),
        ("seconds", {"from_ms": 0, "until_ms": 5, "after": [0, False, ""]}, "not after [0, False, '']"),
        ("leased", "[" * 60_000, '{"after":KEY}'),
        ("everything", "", "message, count, seconds, leased"),
    ],
)
def test_what_is_not_is_refused_with_the_value(what: str, document: Any, told: str) -> None:
    assert told in refused(what, document)


@pytest.mark.parametrize("what", ["message", "count"])
def test_a_chunk_that_no_key_can_name_is_refused(what: str) -> None:
    refusal = _malformed(LookRequest(1, "mail", 1, what, upload=7, chunk=65_536))
    assert refusal is not None
    assert refusal.text == "chunk 65536 is beyond 65535"
    assert _malformed(LookRequest(1, "mail", 1, "message", upload=7, chunk=65_535)) is None

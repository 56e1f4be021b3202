"""What a request about a recurrence may say: no replica may fail at applying it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dueq.core.partition.recurrence_requests import wish_of
from dueq.errors import InvalidRequest
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.records import RecordKind


@pytest.mark.parametrize("payload", [None, 5, True, [], {}, "no base64"])
@pytest.mark.parametrize("terms", [{"action": "create", "every_ms": 60_000}, {"action": "update"}])
def test_a_payload_that_is_not_base64_is_refused(terms: dict[str, Any], payload: object) -> None:
    request = ChangeRequest(1, RecordKind.RECURRENCE, "t", 1, b"c" * 16, 1, 0)
    request.name, request.document = "r", json.dumps(terms | {"payload": payload})
    with pytest.raises(InvalidRequest, match="base64"):
        wish_of(request)


def test_an_update_that_changes_nothing_is_refused() -> None:
    """Whoever misses an argument would be told that the recurrence is as it was asked for."""
    request = ChangeRequest(1, RecordKind.RECURRENCE, "t", 1, b"c" * 16, 1, 0)
    request.name, request.document = "r", json.dumps({"action": "update"})
    with pytest.raises(InvalidRequest, match="there is nothing to change"):
        wish_of(request)
    request.shared = b"s" * 32
    assert wish_of(request).action == "update"

"""What a problem says of an error."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")

from dueq import limits
from dueq.errors import NotLeader, PartialFailure
from dueq.gateway import problems


def test_each_row_of_an_array_that_was_not_scheduled_is_named() -> None:
    """Whoever sends the others again has them twice."""
    refused = NotLeader("nobody leads")
    rows = [refused, "id"] * (limits.GATEWAY_ITEMS_MAX // 2)
    document = problems.of_error(PartialFailure("half of them failed", rows))
    assert [each["row"] for each in document["errors"]] == list(range(0, limits.GATEWAY_ITEMS_MAX, 2))
    assert document["errors"][0] == {"row": 0, "error": "NotLeader", "detail": "nobody leads"}

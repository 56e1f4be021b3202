"""What a caller is told when the rows of its call met different fates."""

from __future__ import annotations

import pytest

from dueq.client.core.ports.parts import whole
from dueq.errors import KeyTaken, PartialFailure


def test_where_one_of_many_rows_was_refused_the_ids_of_the_others_are_told() -> None:
    refused = KeyTaken("its key names a message")
    with pytest.raises(PartialFailure) as raised:
        whole(["id-1", refused, "id-2"])
    assert raised.value.outcomes == ["id-1", refused, "id-2"]


def test_the_only_row_of_a_call_raises_its_own_error() -> None:
    with pytest.raises(KeyTaken):
        whole([KeyTaken("its key names a message")])
    assert whole(["id-1"]) == ["id-1"]

"""Filters: what they say, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from dueq import Filter, InvalidRequest
from dueq.core.ports.entry import State
from dueq.core.state.matching import RowFilter, filter_of


def test_a_filter_says_only_what_matters_and_the_core_understands_it() -> None:
    assert Filter().document() == {"state": "waiting"}
    document = Filter(job="ab" * 16, key_prefix="ü", group="acme.eu", due_from=5, due_until=9).document()
    assert filter_of(document) == RowFilter(
        State.WAITING, bytes.fromhex("ab" * 16), "ü".encode(), "acme.eu", 5, 9
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"state": "leased"}, "leased"),
        ({"job": "nightly"}, "nightly"),
        ({"key_prefix": ""}, "255 bytes"),
        ({"key_prefix": "x" * 256}, "255 bytes"),
        ({"group": 7}, "7"),
        ({"due_from": -1}, "-1"),
        ({"due_until": "tomorrow"}, "tomorrow"),
        ({"due_from": 10, "due_until": 9}, "due_until is 9, before due_from, which is 10"),
    ],
)
def test_a_wrong_value_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        Filter(**wrong)

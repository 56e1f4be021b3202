"""What has changed from one document of a view to the next."""

from __future__ import annotations

from copy import deepcopy
from functools import reduce
from operator import getitem
from typing import Any

import pytest

from dueq.gateway.dashboard.delta import changes


def changed(old: Any, told: list[Any]) -> Any:
    """What a page makes of changes."""
    found = deepcopy(old)
    for place, *value in told:
        inside = reduce(getitem, place[:-1], found)
        if value:
            inside[place[-1]] = value[0]
        else:
            del inside[place[-1]]
    return found


OLD = {
    "at": 1,
    "chart": {"due": {"10": 2, "11": 1}},
    "topics": [{"name": "a", "dead": 0, "until": 5}, {"name": "b", "dead": 0, "until": None}],
    "topic": None,
}


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        {**OLD, "at": 2},
        {**OLD, "chart": {"due": {"11": 1, "12": 7}}},
        {**OLD, "chart": {"due": {}}},
        {**OLD, "topics": [OLD["topics"][0], {"name": "b", "dead": 3, "until": None}]},  # type: ignore[index]
        {**OLD, "topics": [{"name": "a", "dead": 0, "until": None}, {"name": "c"}]},
        {**OLD, "topics": []},
        {**OLD, "topic": {"name": "a"}},
        {"at": 3},
        {**OLD, "new": [None]},
    ],
)
def test_changes_make_the_new_of_the_old(new: Any) -> None:
    assert changed(OLD, list(changes(OLD, new))) == new


def test_only_what_has_changed_is_told() -> None:
    new = deepcopy(OLD)
    new["at"] = 2
    new["chart"] = {"due": {"11": 1}}
    new["topics"][1]["dead"] = 4  # type: ignore[index]
    told = sorted(changes(OLD, new), key=str)
    assert told == [[["at"], 2], [["chart", "due", "10"]], [["topics", 1, "dead"], 4]]
    assert list(changes(OLD, deepcopy(OLD))) == []

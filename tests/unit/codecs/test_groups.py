"""Settings of groups: what is refused, and with which words; and the levels of a name."""

from __future__ import annotations

from typing import Any

import pytest

from dueq_codecs.groups import (
    AS_CREATED,
    GroupRefused,
    GroupSettings,
    check_group_changes,
    decode_group_changes,
    levels_of,
)


@pytest.mark.parametrize(
    "changes",
    [
        {"weight": 1}, {"weight": 1000}, {"max_unacked": 0}, {"max_unacked": 1_000_000}, {"paused": True},
        {"rate": 0}, {"rate": 1_000_000, "burst": 1_000_000}, {"burst": 0},
    ],
)  # fmt: skip
def test_settings_within_their_limits(changes: dict[str, Any]) -> None:
    check_group_changes(changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "nothing is set: a group has weight, max_unacked, rate, burst, paused"),
        ({"weight": 0}, "weight is 1 to 1000, not 0"),
        ({"rate": -1}, "rate is 0 to 1000000, not -1"),
        ({"rate": 1_000_001}, "rate is 0 to 1000000, not 1000001"),
        ({"burst": 2.5}, "burst is 0 to 1000000, not 2.5"),
        ({"burst": True}, "burst is 0 to 1000000, not True"),
        ({"paused": 1}, "paused is true or false, not 1"),
        ({"speed": 1}, "a group has no setting 'speed'; it has weight, max_unacked, rate, burst, paused"),
    ],
)
def test_others_are_refused_with_value_and_limit(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(GroupRefused) as refused:
        check_group_changes(changes)
    assert str(refused.value) == said


def test_settings_come_back_from_their_document() -> None:
    settings = GroupSettings(weight=3, max_unacked=7, paused=True, rate=5, burst=9)
    assert GroupSettings(**decode_group_changes(settings.encode())) == settings
    assert GroupSettings(**decode_group_changes(AS_CREATED.encode())) == AS_CREATED


@pytest.mark.parametrize("document", ["", "[]", "[" * 60_000])
def test_a_document_that_is_none_is_refused(document: str) -> None:
    with pytest.raises(GroupRefused, match="settings of a group are a JSON object, not"):
        decode_group_changes(document)


def test_the_levels_of_a_name_from_the_top() -> None:
    assert levels_of("acme.reports.eu") == ["acme", "acme.reports", "acme.reports.eu"]
    assert levels_of("acme") == ["acme"]
    assert levels_of("") == []

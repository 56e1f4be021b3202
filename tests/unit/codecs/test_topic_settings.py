"""The settings of a topic: versions, canonical form, limits, and what a newer build has set."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from dueq import limits
from dueq_codecs.topic_settings import (
    AS_CREATED,
    INSTANT_MS_MAX,
    PAYLOAD_BYTES_MAX,
    SettingsRefused,
    TopicSettings,
    decode_settings,
)


def test_the_limits_are_those_of_the_mesh() -> None:
    assert (PAYLOAD_BYTES_MAX, INSTANT_MS_MAX) == (limits.PAYLOAD_BYTES_MAX, limits.DUE_MS_MAX)


def test_a_change_makes_the_next_version_and_leaves_the_rest() -> None:
    first = AS_CREATED.changed({"horizon_ms": 60_000}, "a" * 32)
    second = first.changed({"paused": True}, "b" * 32)
    assert (second.version, second.update) == (2, "b" * 32)
    assert (second.paused, second.horizon_ms) == (True, 60_000)


def test_equal_settings_have_equal_documents_and_come_back_from_them() -> None:
    settings = AS_CREATED.changed({"paused": True, "paused_until_ms": 5}, "a" * 32)
    assert decode_settings(settings.encode()) == settings
    assert decode_settings(settings.encode()).encode() == settings.encode()
    assert settings.encode() == json.dumps(settings.fields(), sort_keys=True, separators=(",", ":"))


def test_what_a_newer_build_has_set_is_kept_over_a_change() -> None:
    newer = decode_settings('{"version":4,"of_tomorrow_ms":9000,"paused":true}')
    changed = newer.changed({"paused": False}, "c" * 32)
    assert json.loads(changed.encode())["of_tomorrow_ms"] == 9000
    assert (changed.version, changed.paused) == (5, False)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"colour": "red"}, "there is no setting 'colour'; there are paused,"),
        ({"paused": 1}, "paused is true or false, not 1"),
        ({"horizon_ms": -1}, f"horizon_ms is 0 to {INSTANT_MS_MAX} ms, not -1"),
        ({"payload_bytes_max": 0}, f"payload_bytes_max is 1 to {PAYLOAD_BYTES_MAX} bytes, not 0"),
        ({"payload_bytes_max": True}, "not True"),
        ({"payload_bytes_max": "9"}, "not '9'"),
        ({"rate": 1_000_001}, "rate is 0, or 0.001 to 1000000 messages a second, not 1000001"),
        ({"rate": 0.0009}, "rate is 0, or 0.001 to 1000000 messages a second, not 0.0009"),
        ({"rate": math.nan}, "not nan"),
        ({"rate": True}, "not True"),
        ({"rate": "1"}, "not '1'"),
        ({"burst": 5}, "burst is 5, and the topic has no rate"),
        ({"version": 9}, "there is no setting 'version'"),
        ({"paused": False, "paused_until_ms": 7}, "paused_until_ms is 7, and the topic is not paused"),
    ],
)
def test_a_wrong_change_names_the_value_and_the_limit(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsRefused, match=text.replace("(", r"\(")):
        AS_CREATED.changed(changes, "a" * 32)


@pytest.mark.parametrize(
    "document", ["", "[]", "{", "[" * 60_000, '{"version":-1}', '{"version":"1"}', '{"paused":0}']
)
def test_what_is_no_document_is_refused(document: str) -> None:
    with pytest.raises(SettingsRefused):
        decode_settings(document)


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (["a"], "labels are texts by name"),
        ({"a": 1}, "a label is a text by a name, not 'a': 1"),
        ({"": "x"}, "1 to 63 bytes of UTF-8, not 0"),
        ({"ä" * 32: "x"}, "1 to 63 bytes of UTF-8, not 64"),
        ({"a": "\ud800"}, "is not Unicode text"),
        ({str(number): "" for number in range(33)}, "at most 32 labels, not 33"),
        ({"a": "x" * 2048}, "at most 2048 bytes together, not 2049"),
    ],
)
def test_wrong_labels_name_the_value_and_the_limit(labels: object, text: str) -> None:
    with pytest.raises(SettingsRefused, match=text):
        AS_CREATED.changed({"labels": labels}, "")


@pytest.mark.parametrize(
    ("settings", "until_ms"),
    [
        (TopicSettings(), 0),
        (TopicSettings(paused=True), INSTANT_MS_MAX),
        (TopicSettings(paused=True, paused_until_ms=70), 70),
    ],
)
def test_until_when_nothing_is_delivered(settings: TopicSettings, until_ms: int) -> None:
    assert settings.silent_until_ms == until_ms


def test_a_topic_begins_with_what_is_set_when_it_is_created() -> None:
    begun = AS_CREATED.begun({"keys": "unique", "remember_ms": 5000}, "a" * 32)
    assert (begun.version, begun.update, begun.keys, begun.remember_ms) == (1, "a" * 32, "unique", 5000)
    assert AS_CREATED.begun({}, "a" * 32) is AS_CREATED
    assert begun.changed({"remember_ms": 0, "keys": "unique"}, "b" * 32).remember_ms == 0


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"keys": "mine"}, "keys is one of free, unique, not 'mine'"),
        ({"keys": "unique", "remember_ms": -1}, "remember_ms is 0 to 2592000000 ms, not -1"),
        ({"remember_ms": 7}, "remember_ms is 7, and the topic's keys are free"),
    ],
)
def test_a_topic_does_not_begin_with_what_keys_cannot_be(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsRefused, match=text):
        AS_CREATED.begun(changes, "a" * 32)


def test_keys_are_fixed_when_a_topic_is_created() -> None:
    with pytest.raises(
        SettingsRefused, match="keys is fixed when a topic is created: it is 'free', not 'unique'"
    ):
        AS_CREATED.changed({"keys": "unique"}, "b" * 32)

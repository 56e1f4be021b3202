"""What callers say of keys and versions, and what is said about what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from dueq import InvalidRequest
from dueq.client.per_row import version_column
from dueq.client.unique import unique_key
from dueq.limits import SEQUENCE_MAX


@pytest.mark.parametrize("key", ["a", "\0", "x" * 255, "é" * 127, "a\nb"])
def test_any_text_of_some_bytes_is_a_key(key: str) -> None:
    assert unique_key(key) == key


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "1 to 255 bytes of UTF-8, not 0: ''"),
        ("é" * 128, "1 to 255 bytes of UTF-8, not 256"),
        ("\ud800", "is not Unicode text"),
        (b"a", "a key is a str, not bytes: b'a'"),
        (5, "a key is a str, not int: 5"),
    ],
)
def test_what_is_no_key_is_named(key: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        unique_key(key)


@pytest.mark.parametrize("version", [0, -1, SEQUENCE_MAX + 1, 1.5, float("nan"), True, "x"])
def test_what_is_no_version_is_named(version: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"from 1 to {SEQUENCE_MAX}, not "):
        version_column(version, 1)

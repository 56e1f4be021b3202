"""The filter of unique keys: it forgets none, and seldom takes another for one of them."""

from __future__ import annotations

import pytest

from dueq.core.state import key_filter
from dueq.core.state.key_filter import KeyFilter
from dueq_codecs.records import U64
from dueq_codecs.rules import key_hashes


def hashes(what: str, count: int) -> tuple[U64, U64]:
    return key_hashes([f"{what} {number}".encode() for number in range(count)])


def test_what_was_added_is_there_and_little_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_filter, "_WORDS_FIRST", 128)
    found = KeyFilter()
    assert found.perhaps(*hashes("new", 9)) == []
    high, low = hashes("added", 6_000)
    for at in range(0, len(high), 700):
        found.add(high[at : at + 700], low[at : at + 700])
    assert found.perhaps(high, low) == list(range(6_000))
    assert len(found.perhaps(*hashes("new", 6_000))) < 6_000 * 0.001
    assert found.size == sum(128 * 4**step * 8 for step in range(3))
    assert not found.is_full


def test_it_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_filter, "KEY_FILTER_BYTES_MAX", 140_000)
    found = KeyFilter()
    found.add(*hashes("added", (1 << 20) // 24))
    assert not found.is_full
    found.add(*hashes("more", 1))
    assert found.is_full

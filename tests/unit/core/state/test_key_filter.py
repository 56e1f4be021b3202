"""The filter of unique keys: it forgets none, and seldom takes another for one of them."""

from __future__ import annotations

from hashlib import sha256

import pytest

from dueq.core.state import key_filter
from dueq.core.state.key_filter import KeyFilter


def hashes(what: str, count: int) -> list[bytes]:
    return [sha256(f"{what} {number}".encode()).digest()[:16] for number in range(count)]


def test_what_was_added_is_there_and_little_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_filter, "_KEYS_FIRST", 512)
    found = KeyFilter()
    assert found.perhaps(hashes("new", 9)) == []
    added = hashes("added", 6_000)
    for at in range(0, len(added), 700):
        found.add(added[at : at + 700])
    assert found.perhaps(added) == added
    assert len(found.perhaps(hashes("new", 6_000))) < 6_000 * 0.08
    assert found.size == sum(512 * 4**step * 16 // 8 for step in range(3))
    assert not found.is_full


def test_it_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_filter, "KEY_FILTER_BYTES_MAX", 140_000)
    found = KeyFilter()
    found.add(hashes("added", 1 << 16))
    assert not found.is_full
    found.add(hashes("more", 1))
    assert found.is_full

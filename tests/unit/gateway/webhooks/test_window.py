"""How many requests are under way."""

from __future__ import annotations

import pytest

pytest.importorskip("aiohttp")

from dueq.gateway.webhooks.window import Window


def test_it_is_as_wide_as_it_may_be_until_the_receiver_fails() -> None:
    window = Window(3)
    for _ in range(3):
        assert window.free
        window.begin()
    assert not window.free
    window.end()
    assert window.free


def test_it_halves_with_each_failure_and_grows_with_each_answer() -> None:
    window = Window(64)
    window.failed()
    window.failed()
    assert window.limit == 16
    window.answered()
    assert window.limit == 17
    for _ in range(100):
        window.failed()
    assert window.limit == 1
    for _ in range(100):
        window.answered()
    assert window.limit == 64


def test_after_a_pause_one_message_finds_out() -> None:
    window = Window(64)
    window.begin()
    window.throttled()
    assert not window.free
    window.end()
    assert window.free

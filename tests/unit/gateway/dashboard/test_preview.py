"""A part of a payload for the eye."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as some

pytest.importorskip("fastapi")

from dueq import limits
from dueq.gateway.dashboard.preview import preview

VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(max_size=8),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=4), inner, max_size=4),
)


def test_json_is_laid_out_and_its_numbers_stay_as_they_were_written() -> None:
    found = preview(b'{"id":9007199254740993,"price":1.10,"none":{},"many":[1,[]]}')
    assert (found.form, found.cut) == ("json", False)
    lines = ["{", '  "id": 9007199254740993,', '  "price": 1.10,', '  "none": {},', '  "many": [']
    lines = ["{", '  "id": 9007199254740993,', '  "price": 1.10,', '  "none": {},', '  "many": [']
    assert found.text.splitlines() == [*lines, "    1,", "    []", "  ]", "}"]


@given(some.lists(VALUES, max_size=5))
def test_json_that_is_laid_out_means_the_same(value: object) -> None:
    found = preview(json.dumps(value, ensure_ascii=True).encode())
    assert found.form == "json"
    if not found.cut and "\\u{" not in found.text:
        assert json.loads(found.text) == value


def test_text_is_text_whatever_it_says() -> None:
    assert preview(b"<script>alert(1)</script>").text == "<script>alert(1)</script>"
    assert preview(b"{not json").form == "text"


def test_what_hides_or_turns_text_is_written_out() -> None:
    assert preview("a\x1b[31m\u202eb".encode()).text == "a\\u{1b}[31m\\u{202e}b"
    assert preview("\xad\u061c\u180e\U000e0041".encode()).text == "\\u{ad}\\u{61c}\\u{180e}\\u{e0041}"


def test_bytes_are_in_hex() -> None:
    found = preview(b"\xff\x00AB")
    assert found.form == "hex"
    assert found.text.startswith("000000  ff 00 41 42")
    assert found.text.endswith("..AB")


def test_deep_json_costs_no_more_than_what_is_shown_of_it() -> None:
    depth = 800
    payload = b"[" * depth + b"1," * (1 << 19) + b"1" + b"]" * depth
    tracemalloc.start()
    try:
        found = preview(payload)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found.form, found.cut) == ("json", True)
    assert found.text.startswith("[\n  [\n    [")
    assert peak < 32 << 20


def test_only_the_beginning_is_shown() -> None:
    for payload in (b"x" * (1 << 20), b"\xff" * (1 << 20), b"[" + b"1," * (1 << 18) + b"1]"):
        found = preview(payload)
        assert found.cut
        assert len(found.text) <= 2 * limits.DASHBOARD_PREVIEW_BYTES


def test_nothing_is_nothing_and_depth_breaks_nothing() -> None:
    assert preview(b"").form == "empty"
    assert preview(b"[" * 100_000).form == "text"

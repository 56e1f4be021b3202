"""Where one message goes: it begins the payload."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dueq import InvalidRequest, Target
from dueq_codecs.target import HEADERS_BYTES_MAX


def test_a_target_comes_back_from_payload_and_headers() -> None:
    target = Target("https://example.org/a?b=c", "DELETE", {"x-a": "1"}, timedelta(seconds=30))
    payload, headers = target.around(bytes(range(256)), {"tenant": "acme"})
    assert headers["tenant"] == "acme"
    found, body = Target.within(payload, headers)
    assert found == Target("https://example.org/a?b=c", "DELETE", {"x-a": "1"}, 30.0)
    assert body == bytes(range(256))


def test_most_messages_have_none() -> None:
    assert Target.within(b"{}", {"tenant": "acme"}) == (None, b"{}")
    payload, headers = Target("https://example.org/").around(b"")
    assert Target.within(payload, headers) == (Target("https://example.org/"), b"")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"url": "ftp://example.org/"}, "https://"),
        ({"url": "https://example.org/" + "x" * 2064}, "a URL has 1 to 2083 ASCII"),
        ({"method": "TRACE"}, "the method of a target is one of POST"),
        ({"headers": {"host": "evil"}}, "the header host is not to be set"),
        ({"headers": {"x": "y" * HEADERS_BYTES_MAX}}, "headers have at most 65536 bytes, not 65537"),
        ({"headers": {"x": '"' * 50_000}}, "a target has at most 98304 bytes, not 1000"),
        ({"headers": 5}, "the headers of a target are a mapping, not 5"),
        ({"deadline": 0.05}, "the deadline of a target"),
        ({"deadline": 1801}, "the deadline of a target"),
    ],
)
def test_a_bad_target_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        Target(**{"url": "https://example.org/", **changes}).around(b"")


def test_a_body_that_is_no_bytes_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="the body of a target is bytes, not str: 'text'"):
        Target("https://example.org/").around("text")  # type: ignore[arg-type]


def test_what_only_says_that_it_has_one_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="dueq_target is the length"):
        Target.within(b"{}", {"dueq_target": "3"})

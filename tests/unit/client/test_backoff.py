"""Arguments about the ends of messages: back-off, limits, reasons. A bad value is refused with its limit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dueq import Backoff
from dueq.client import endings, topic_changes
from dueq.errors import InvalidRequest
from dueq_codecs.records import Fate


def test_a_back_off_is_a_document_in_milliseconds() -> None:
    found = Backoff(1.5, 3.0, timedelta(minutes=1), 0.2, 4).document()
    assert found == {"first_ms": 1500, "factor": 3.0, "longest_ms": 60_000, "jitter": 0.2, "doublings": 4}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"factor": 0.5}, "factor of backoff is 1 to 1000, not 0.5"),
        ({"jitter": 1.5}, "jitter of backoff is 0 to 1, not 1.5"),
        ({"first": -1}, "first of the back-off"),
    ],
)
def test_a_bad_back_off_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        Backoff(**changes).document()


def test_what_is_no_back_off_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not '1s'"):
        topic_changes.endings(None, "1s", None, None)  # type: ignore[arg-type]


def test_a_nack_without_a_delay_follows_the_back_off() -> None:
    assert endings.nack(None, "why", False) == (0, Fate.BACK_OFF, "why", "")
    assert endings.nack(2.0, "", False) == (2000, Fate.DELAY, "", "")
    assert endings.nack(None, "", True) == (0, Fate.DEAD, "", "")


def test_bad_ends_are_refused_with_value_and_limit() -> None:
    with pytest.raises(InvalidRequest, match="a reason has at most 1024 bytes of UTF-8, not 1026"):
        endings.nack(None, "é" * 513, False)
    with pytest.raises(InvalidRequest, match="is not Unicode text: surrogates not allowed"):
        endings.nack(None, "\ud800", False)
    with pytest.raises(InvalidRequest, match="a reason is a str, not bytes: b'x'"):
        endings.nack(None, b"x", False)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="a message that is dead has no delay, not 3"):
        endings.nack(3, "", True)
    with pytest.raises(InvalidRequest, match="delay is 0 to 86400 seconds, not 86401"):
        endings.release(86_401)
    with pytest.raises(InvalidRequest, match="expired is finish or dead, not 'gone'"):
        topic_changes.endings(None, None, "gone", None)
    with pytest.raises(InvalidRequest, match="max_attempts"):
        topic_changes.endings(65_536, None, None, None)


def test_headers_that_a_nack_brings_are_checked() -> None:
    assert endings.nack(None, "", False, {"a": "é"}).headers == '{"a":"é"}'
    assert endings.nack(None, "", False, {}).headers == "{}"
    with pytest.raises(InvalidRequest, match="is a str, not int"):
        endings.nack(None, "", False, {"a": 1})  # type: ignore[dict-item]

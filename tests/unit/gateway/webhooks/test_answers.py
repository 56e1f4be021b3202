"""The table of answers."""

from __future__ import annotations

import pytest

pytest.importorskip("aiohttp")

from dueq.gateway.webhooks.answers import Answer, Fate, reason_of, retry_after_s, verdict

NOW_MS = 1_700_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("status", "fate", "overloaded"),
    [
        (200, Fate.DONE, False),
        (204, Fate.DONE, False),
        (299, Fate.DONE, False),
        (301, Fate.AGAIN, False),
        (307, Fate.AGAIN, False),
        (400, Fate.AGAIN, False),
        (404, Fate.AGAIN, False),
        (410, Fate.GONE, False),
        (429, Fate.AGAIN, True),
        (489, Fate.DEAD, False),
        (500, Fate.AGAIN, False),
        (502, Fate.AGAIN, True),
        (503, Fate.AGAIN, True),
        (504, Fate.AGAIN, True),
        (0, Fate.AGAIN, True),
    ],
)
def test_each_status_has_its_fate(status: int, fate: Fate, overloaded: bool) -> None:
    found = verdict(Answer(status, "why"), NOW_MS)
    assert (found.fate, found.overloaded) == (fate, overloaded)


@pytest.mark.parametrize("status", [429, 503])
def test_a_receiver_may_ask_for_a_pause(status: int) -> None:
    found = verdict(Answer(status, "", "90"), NOW_MS)
    assert (found.fate, found.delay_s, found.reason) == (Fate.LATER, 90.0, f"HTTP {status}")


@pytest.mark.parametrize("status", [500, 404, 301])
def test_other_answers_cannot(status: int) -> None:
    assert verdict(Answer(status, "", "90"), NOW_MS).fate is Fate.AGAIN


@pytest.mark.parametrize(
    ("text", "delay_s"),
    [
        ("90", 90.0),
        (" 5 ", 5.0),
        ("0", 1.0),
        ("999999999999999999999", 86_400.0),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tue, 14 Nov 2023 22:14:20 -0000", 60.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 1.0),
        ("Tue, 14 Nov 2033 22:00:00 GMT", 86_400.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
    ],
)
def test_a_pause_is_seconds_or_a_date_and_a_day_at_most(text: str, delay_s: float | None) -> None:
    assert retry_after_s(text, NOW_MS) == delay_s


def test_the_reason_is_status_and_the_beginning_of_the_answer() -> None:
    assert verdict(Answer(500, "no space left"), NOW_MS).reason == "HTTP 500: no space left"
    assert verdict(Answer(0, "no answer within 2 s"), NOW_MS).reason == "no answer within 2 s"
    long = verdict(Answer(500, "é" * 2000), NOW_MS).reason
    assert len(long.encode()) in (1023, 1024)


@pytest.mark.parametrize(
    "text",
    ["Fri, 01 Jan 99999999999999999999 00:00:00 GMT", "-9999 Feb 0 12.00 99999999999999999999 00 +0000 ,"],
)
def test_a_date_that_no_clock_has_asks_for_nothing(text: str) -> None:
    assert retry_after_s(text, 1_700_000_000_000) is None


def test_a_reason_steers_no_terminal() -> None:
    said = "\x1b]0;owned\x07\x1b[2J\x9b1m a\tb\nc \u202egnp.exe \u00e9"
    assert reason_of(Answer(500, said)) == (
        "HTTP 500: \ufffd]0;owned\ufffd\ufffd[2J\ufffd1m a\tb\nc \ufffdgnp.exe \u00e9"
    )

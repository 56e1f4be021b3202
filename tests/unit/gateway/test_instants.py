"""Instants and durations of HTTP."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dueq.client.times import moment
from dueq.errors import InvalidRequest
from dueq.gateway import instants
from dueq.gateway.problems import Unfit, of_error

pytest.importorskip("fastapi")

NOW_US = 1_700_000_000_000_500


@pytest.mark.parametrize(
    ("said", "ms"),
    [
        ("2030-01-31T09:00:00Z", 1_896_080_400_000),
        ("2030-01-31T10:00:00.0001+01:00", 1_896_080_400_001),
        (1_896_080_400_000, 1_896_080_400_000),
        ("1896080400000", 1_896_080_400_000),
        ("90s", 1_700_000_090_001),
        (0, 0),
    ],
)
def test_an_instant_has_three_forms_and_is_never_early(said: int | str, ms: int) -> None:
    assert instants.instant_ms(said, NOW_US, "due") == ms


@pytest.mark.parametrize(
    "said",
    [
        1_896_080_400,
        1_896_080_400_000_000,
        -1,
        "2030-01-31T09:00:00",
        "2030-W05",
        "soon",
        "",
        "2030-02-31T00:00:00Z",
    ],
)
def test_what_is_no_instant_is_refused_by_name(said: int | str) -> None:
    """Seconds and microseconds too: a message must not be delivered at once, or never, because of its unit."""
    with pytest.raises(InvalidRequest, match="due"):
        instants.instant_ms(said, NOW_US, "due")


def test_answers_are_rfc_3339_as_long_as_that_can_say_it() -> None:
    assert instants.text(1_896_080_400_001) == "2030-01-31T09:00:00.001Z"
    assert instants.text((1 << 48) - 1) == str((1 << 48) - 1)


def test_a_duration_is_a_text_or_seconds() -> None:
    assert instants.seconds("1h30m", "delay") == instants.seconds(5400, "delay") == 5400
    with pytest.raises(InvalidRequest, match="delay"):
        instants.seconds("1 hour", "delay")


@pytest.mark.parametrize(
    ("said", "ms"),
    [("16.1s", 16_100), (16.1, 16_100), ("1.1h", 3_960_000), ("2s7ms", 2007), (2.007, 2007), (1e-9, 1)],
)
def test_a_duration_is_read_to_the_millisecond(said: float | str, ms: int) -> None:
    """A binary fraction may be a little more than the decimal one: that was a millisecond more."""
    assert instants.duration(said, "delay") == timedelta(milliseconds=ms)


@pytest.mark.parametrize("text", ["1s" * 500_000, "1s" * 33, "-" + "1s" * 33, "1" * 5000])
def test_a_text_that_is_longer_than_any_instant_is_refused_unread(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million parts of a duration were added up: meanwhile the gateway did nothing else."""
    monkeypatch.setattr(instants, "_PART", None)
    monkeypatch.setattr(instants, "_DATE", None)
    for read in (
        lambda: instants.instant_ms(text, NOW_US, "due"),
        lambda: instants.duration(text, "due"),
        lambda: instants.difference(text, "due"),
    ):
        with pytest.raises(Unfit, match="at most 64 characters") as refused:
            read()
        shown = of_error(refused.value)
        assert (shown["where"], shown["limit"]) == ("due", 64)
        assert len(shown["value"]) <= 200
        assert len(shown["detail"]) <= 200


def test_blanks_around_an_instant_do_not_count() -> None:
    assert instants.instant_ms(" " * 100 + "90s" + " " * 100, NOW_US, "due") == 1_700_000_090_001
    assert instants.duration("1s" * 32, "delay") == timedelta(seconds=32)


@pytest.mark.parametrize(
    "ms",
    [1, 1_700_000_000_001, 2_222_222_222_001, 4_102_444_800_003, 32_503_680_000_007, 253_402_300_799_999],
)
def test_an_instant_of_the_sdk_is_told_to_the_millisecond(ms: int) -> None:
    assert instants.ms_of(moment(ms)) == ms
    assert instants.of_time(moment(ms)) == instants.text(ms)

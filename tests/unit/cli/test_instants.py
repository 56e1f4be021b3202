"""Instants and durations, as people write them for --at and --in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from dueq.cli.instants import chosen_due, parse_duration, parse_instant, parse_when
from dueq.time_text import duration_text, instant_text


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("10s", timedelta(seconds=10)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1.5s", timedelta(milliseconds=1500)),
        ("2d 3h", timedelta(days=2, hours=3)),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "10", "s", "10x", "-5s", "5m!", "99999999999999999d"])
def test_anything_else_is_refused_and_named(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"duration|too long"):
        parse_duration(text)


def test_an_instant_is_unix_milliseconds_or_iso_8601_with_a_zone() -> None:
    assert parse_instant("1700000000123") == 1_700_000_000_123
    assert parse_instant("2030-01-31T09:00:00Z") == datetime(2030, 1, 31, 9, tzinfo=UTC)
    assert parse_instant("2030-01-31T09:00:00+02:00") == datetime(2030, 1, 31, 7, tzinfo=UTC)


def test_a_date_without_a_zone_is_never_guessed() -> None:
    with pytest.raises(click.BadParameter, match="no time zone: write 2030-01-31T09:00:00Z for UTC"):
        parse_instant("2030-01-31T09:00:00")
    with pytest.raises(click.BadParameter, match="no time zone: write 2030-01-31T00:00:00Z for UTC"):
        parse_instant("2030-01-31")


@pytest.mark.parametrize("text", ["tomorrow", "1e12", "12:00"])
def test_no_instant_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="neither ISO 8601"):
        parse_instant(text)


@pytest.mark.parametrize("text", ["1700000000", "20300131", "1", "99999999999"])
def test_what_looks_like_seconds_or_a_date_is_not_taken_for_milliseconds(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f"{text} is before 1973 as Unix milliseconds"):
        parse_instant(text)
    assert parse_instant("0") == 0
    assert parse_instant("100000000000") == 100_000_000_000


def test_exactly_one_of_at_and_in_is_needed() -> None:
    assert chosen_due(5, None) == 5
    assert chosen_due(0, None) == 0
    assert chosen_due(None, timedelta(0)) == timedelta(0)
    with pytest.raises(click.UsageError, match="not both"):
        chosen_due(5, timedelta(1))
    with pytest.raises(click.UsageError, match="Say when"):
        chosen_due(None, None)


def test_instants_are_printed_to_the_millisecond_however_far() -> None:
    assert instant_text(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"
    assert instant_text((1 << 48) - 1) == "281474976710655 ms"


@pytest.mark.parametrize("text", ["0s", "250ms", "1h30m", "14d", "8d1h2m3s4ms"])
def test_durations_are_said_as_they_are_given(text: str) -> None:
    assert duration_text(parse_duration(text)) == text
    assert duration_text(-parse_duration(text)) in (f"-{text}", "0s")


def test_a_duration_with_spaces_is_one_wherever_an_instant_may_stand() -> None:
    assert parse_when("1h 30m", "--expires") == parse_duration("1h 30m") == timedelta(minutes=90)

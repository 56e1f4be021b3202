"""When a recurrence fires: periods, lists, cron lines, and the days on which clocks are set."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from dueq.recurring.terms import Terms
from dueq.recurring.ticks import due_of, first_made_up, next_tick, ticks_after

BERLIN = "Europe/Berlin"
LEAPS = datetime(2026, 3, 28, 12, tzinfo=UTC)
"""The day before the clocks of Berlin leap from 02:00 to 03:00."""
RETURNS = datetime(2026, 10, 24, 12, tzinfo=UTC)
"""The day before they go back from 03:00 to 02:00."""


def ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def shown(terms: Terms, after: datetime, count: int) -> list[str]:
    """The next ticks as the clocks of the zone show them, with the difference from UTC."""
    ticks = islice(ticks_after(terms, ms(after), ms(after)), count)
    zone = ZoneInfo(terms.zone)
    return [datetime.fromtimestamp(tick / 1000, zone).strftime("%d %H:%M:%S%z") for tick in ticks]


@pytest.mark.parametrize("line", ["30 2 * * *", "0 30 2 * * *"])
def test_a_fixed_time_that_the_clock_leaps_over_fires_at_the_end_of_the_leap(line: str) -> None:
    assert shown(Terms(line, zone=BERLIN), LEAPS, 3) == [
        "29 03:00:00+0200", "30 02:30:00+0200", "31 02:30:00+0200",
    ]  # fmt: skip


def test_several_fixed_times_within_the_leap_fire_together_once() -> None:
    assert shown(Terms("0,20,40 2 * * *", zone=BERLIN), LEAPS, 2) == ["29 03:00:00+0200", "30 02:00:00+0200"]


@pytest.mark.parametrize("line", ["30 2 * * *", "0 30 2 * * *"])
def test_a_fixed_time_that_comes_twice_fires_the_first_time(line: str) -> None:
    assert shown(Terms(line, zone=BERLIN), RETURNS, 2) == ["25 02:30:00+0200", "26 02:30:00+0100"]


@pytest.mark.parametrize("line", ["*/30 * * * *", "0 */30 * * * *", "*/30 2,3 * * *"])
def test_any_other_line_goes_by_time_as_it_passes(line: str) -> None:
    terms = Terms(line, zone=BERLIN)
    at_two = datetime(2026, 10, 25, 1, 59, tzinfo=ZoneInfo(BERLIN))
    assert shown(terms, at_two, 5) == [
        "25 02:00:00+0200", "25 02:30:00+0200", "25 02:00:00+0100", "25 02:30:00+0100", "25 03:00:00+0100",
    ]  # fmt: skip
    before_leap = datetime(2026, 3, 29, 1, 59, tzinfo=ZoneInfo(BERLIN))
    assert shown(terms, before_leap, 2) == ["29 03:00:00+0200", "29 03:30:00+0200"]


@pytest.mark.parametrize("line", ["0 * * * *", "0 0 * * * *"])
def test_a_line_of_every_hour_fires_in_the_hour_that_comes_twice(line: str) -> None:
    at_one = datetime(2026, 10, 25, 1, 30, tzinfo=ZoneInfo(BERLIN))
    assert shown(Terms(line, zone=BERLIN), at_one, 3) == [
        "25 02:00:00+0200", "25 02:00:00+0100", "25 03:00:00+0100",
    ]  # fmt: skip


@pytest.mark.parametrize("months_before", [0, 6, 9])
def test_a_time_that_comes_twice_is_found_from_before_the_clocks_were_set_forward(months_before: int) -> None:
    after = datetime(2026, 10 - months_before, 24, tzinfo=UTC)
    assert shown(Terms("*/30 2 25 10 *", zone=BERLIN), after, 4) == [
        "25 02:00:00+0200", "25 02:30:00+0200", "25 02:00:00+0100", "25 02:30:00+0100",
    ]  # fmt: skip


def test_a_line_may_begin_with_seconds() -> None:
    assert shown(Terms("*/20 59 23 * * *", zone=BERLIN), LEAPS, 4) == [
        "28 23:59:00+0100", "28 23:59:20+0100", "28 23:59:40+0100", "29 23:59:00+0200",
    ]  # fmt: skip


def test_a_tick_is_strictly_after_the_instant_asked_for() -> None:
    terms = Terms("0 9 * * *")
    nine = datetime(2026, 5, 1, 9, tzinfo=UTC)
    assert next_tick(terms, 0, ms(nine) - 1) == ms(nine)
    assert next_tick(terms, 0, ms(nine)) == ms(nine) + 86_400_000


def test_a_period_counts_from_its_anchor() -> None:
    terms = Terms(every_ms=90_000)
    assert list(islice(ticks_after(terms, 1_000, 1_000), 3)) == [91_000, 181_000, 271_000]
    assert next_tick(terms, 1_000, 100_000_500) == 100_081_000
    assert next_tick(Terms(every_ms=90_000, start_ms=500_000), 500_000, 1_000) == 500_000


def test_nothing_fires_before_the_start_nor_at_the_end() -> None:
    terms = Terms("* * * * *", start_ms=600_000, end_ms=720_000)
    assert list(ticks_after(terms, 0, 0)) == [600_000, 660_000]


def test_a_list_of_instants_ends() -> None:
    assert list(ticks_after(Terms(at_ms=(5, 7, 70)), 0, 5)) == [7, 70]


def test_a_line_that_comes_seldom_is_found_and_one_that_never_comes_is_not() -> None:
    assert shown(Terms("0 0 * 2 MON#5"), LEAPS, 1) == ["29 00:00:00+0000"]
    assert not next_tick(Terms("* * */20 * 1L"), 0, ms(LEAPS))


def test_dates_end() -> None:
    assert not next_tick(Terms("0 0 1 1 *"), 0, (1 << 48) - 1)
    assert not next_tick(
        Terms("0 0 1 1 *", zone=BERLIN), 0, ms(datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC))
    )


@pytest.mark.parametrize(
    ("missed", "first"), [(0, 660_000), (1, 600_000), (3, 480_000), (9, 120_000), (10, 60_000), (100, 60_000)]
)
def test_the_latest_missed_ticks_are_made_up_for(missed: int, first: int) -> None:
    for terms in (Terms("* * * * *", missed=missed), Terms(every_ms=60_000, missed=missed)):
        assert first_made_up(terms, 0, 60_000, 630_000, "a") == first


@pytest.mark.parametrize("missed", [0, 1, 2])
@pytest.mark.parametrize("late", [0, 1, 4, 20])
def test_what_its_jitter_holds_until_later_is_not_missed(missed: int, late: int) -> None:
    """Of the ticks up to an instant the last one may be due after it: it is neither missed nor made up for."""
    terms = Terms(every_ms=60_000, jitter_ms=59_000, missed=missed)
    ticks = range(60_000, 6_000_000, 60_000)
    dues = [due_of(terms, "a", tick) for tick in ticks]
    for until_ms in range(dues[late], dues[late] + 120_000, 7_000):
        late_ones = [tick for tick, due in zip(ticks, dues, strict=True) if due <= until_ms]
        soonest = late_ones[-missed:][0] if missed else late_ones[-1] + 60_000
        assert first_made_up(terms, 0, 60_000, until_ms, "a") == soonest


@pytest.mark.parametrize("missed", [0, 1, 2, 5])
def test_no_tick_is_lost_and_no_more_are_made_up_for_where_jitter_changes_their_order(missed: int) -> None:
    """Instants that are closer than the jitter: a tick may be missed though one before it is still to come."""
    ticks = [day * 86_400_000 for day in range(1, 6)] + [5 * 86_400_000 + n * 1_000 for n in range(1, 12)]
    terms = Terms(at_ms=tuple(ticks), jitter_ms=80_000_000, missed=missed)
    dues = {tick: due_of(terms, "a", tick) for tick in ticks}
    for until_ms in range(dues[ticks[0]], ticks[-1] + 90_000_000, 1_700_000):
        for at, first in enumerate(ticks):
            if dues[first] > until_ms:
                continue
            late_ones = [tick for tick in ticks[at:] if dues[tick] <= until_ms]
            coming = [tick for tick in ticks[at:] if dues[tick] > until_ms]
            made_up = late_ones[-missed:] if missed else []
            soonest = min(made_up + coming, default=0)
            assert first_made_up(terms, 0, first, until_ms, "a") == soonest


def test_the_last_missed_tick_is_found_however_long_ago_the_first_was() -> None:
    terms = Terms("0 0 29 2 *", zone=BERLIN)
    first = next_tick(terms, 0, ms(datetime(1980, 1, 1, tzinfo=UTC)))
    found = first_made_up(terms, 0, first, ms(datetime(2026, 1, 1, tzinfo=UTC)), "a")
    assert datetime.fromtimestamp(found / 1000, ZoneInfo(BERLIN)) == datetime(
        2024, 2, 29, tzinfo=ZoneInfo(BERLIN)
    )


def test_jitter_is_bounded_and_the_same_for_everybody() -> None:
    terms = Terms("* * * * *", jitter_ms=30_000)
    drawn = [due_of(terms, "a", tick) - tick for tick in range(0, 60_000_000, 60_000)]
    assert drawn == [due_of(terms, "a", tick) - tick for tick in range(0, 60_000_000, 60_000)]
    assert min(drawn) >= 0
    assert max(drawn) <= 30_000
    assert len(set(drawn)) > 900
    assert due_of(terms, "a", 60_000) != due_of(terms, "b", 60_000)
    assert due_of(Terms("* * * * *"), "a", 60_000) == 60_000

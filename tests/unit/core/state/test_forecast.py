"""How many messages are due when: by the second in the window, by the hour up to 400 days ahead, beyond that as one."""

from __future__ import annotations

import pytest

from dueq.core.state.timeline import Timeline
from dueq_codecs.records import LEVEL_OF_KINDS, Outcome, RecordKind
from tests.unit.core.state.test_timeline import NOON, UID, Shelf, Story, u64

DAY_MS = 86_400_000


def test_it_is_exact_by_second_inside_the_window() -> None:
    story = Story()
    story.insert(NOON, NOON + 999, NOON + 1000, NOON + 5000, NOON + DAY_MS)
    assert story.timeline.forecast(NOON, 10) == [(NOON, 2), (NOON + 1000, 1), (NOON + 5000, 1)]


def test_it_spreads_what_is_only_known_by_the_hour() -> None:
    story, shelf = Story(Timeline(UID, hot_rows_max=2)), Shelf()
    hour = NOON - NOON % 3_600_000
    story.stamp = hour
    story.insert(hour, *(hour + 7_200_000 + at for at in range(3600)))
    shelf.save(story.timeline)
    counts = story.timeline.forecast(hour, 3 * 3600)
    assert counts[0] == (hour, 1)
    assert counts[1:] == [(hour + 7_200_000 + 1000 * second, 1) for second in range(3600)]


def test_what_is_known_by_the_hour_is_spread_over_all_of_it_whatever_part_is_asked_for() -> None:
    story, shelf = Story(Timeline(UID, hot_rows_max=2)), Shelf()
    hour = NOON - NOON % 3_600_000
    story.stamp = hour
    story.insert(hour, *(hour + 7_200_000 + at for at in range(3600)))
    shelf.save(story.timeline)
    half = hour + 7_200_000 + 1_800_000
    assert story.timeline.forecast(half, 3600) == [(half + 1000 * second, 1) for second in range(1800)]


def test_it_survives_a_restart_and_forgets_what_moved() -> None:
    story, shelf = Story(), Shelf()
    row = story.insert(NOON + 5000, NOON + 500 * DAY_MS).waiting
    shelf.save(story.timeline)
    again = Timeline(UID, shelf.recover())
    assert again.export()["hours"] == [((NOON + 5000) // 3_600_000, 1)]
    assert again.export()["far"] == 1
    story.request(RecordKind.CANCEL, row)
    assert story.timeline.export()["hours"] == []
    assert story.timeline.export()["far"] == 0


@pytest.mark.parametrize("count", [1, 9], ids=["a small record", "a large one"])
@pytest.mark.parametrize("version", [1, LEVEL_OF_KINDS])
def test_what_was_moved_far_ahead_is_counted_out_again_when_it_goes(count: int, version: int) -> None:
    """A row knows whether it counts as far. Else it would be counted out of an hour that has none."""
    story = Story()
    rows = story.insert(*[NOON + 5000] * count).waiting
    far = u64(*[NOON + 500 * DAY_MS] * count)
    assert story.request(RecordKind.MOVE, rows, due=far, version=version) == [Outcome.DONE] * count
    assert (story.timeline.export()["hours"], story.timeline.export()["far"]) == ([], count)
    assert story.request(RecordKind.CANCEL, rows) == [Outcome.DONE] * count
    assert (story.timeline.export()["hours"], story.timeline.export()["far"]) == ([], 0)

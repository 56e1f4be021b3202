"""What memory holds of the rows, and notes of them."""

from __future__ import annotations

from dueq.core.ports.entry import State, keys_of
from dueq.core.state.residency import LOOSE_MAX
from dueq.core.state.timeline import Timeline
from dueq_codecs.records import LEVEL_OF_KINDS, Outcome, RecordKind
from tests.unit.core.state.test_timeline import NOON, UID, Shelf, Story, u64


def test_records_that_change_nothing_leave_a_bounded_number_of_notes() -> None:
    """Nothing is to be saved after them, so there is no checkpoint that would have memory forget rows."""
    story, shelf = Story(), Shelf()
    rows = story.insert(NOON + 1000).waiting
    shelf.save(story.timeline)
    for _ in range(1_000):
        assert story.request(RecordKind.CANCEL, rows, expected=u64(99)) == [Outcome.CHANGED]
    assert len(story.timeline._residency._loose) <= LOOSE_MAX


def test_a_triggered_message_stays_though_the_window_ends_before_it() -> None:
    """In a paused topic it is behind all that is overdue. Who delivers it looks for it in memory alone."""
    story, shelf = Story(Timeline(UID, hot_rows_max=2)), Shelf()
    rows = story.insert(*[NOON] * 10).waiting
    story.stamp = NOON + 5000
    assert story.request(RecordKind.TRIGGER, rows[9:], version=LEVEL_OF_KINDS) == [Outcome.DONE]
    shelf.save(story.timeline)
    assert story.timeline.rows(keys_of(rows))["state"].tolist()[1:] == [State.ABSENT] * 8 + [State.WAITING]


def test_what_is_ready_to_be_delivered_is_counted_as_it_comes_and_goes() -> None:
    story = Story()
    counts = [story.timeline.hot_count]
    waiting = story.insert(NOON).waiting
    counts.append(story.timeline.hot_count)
    leased = story.lease(waiting)
    counts.append(story.timeline.hot_count)
    assert story.request(RecordKind.NACK, leased, amount_ms=u64(0)) == [Outcome.DONE]
    counts.append(story.timeline.hot_count)
    assert counts == [0, 1, 0, 1]


def test_what_has_ended_and_is_still_on_the_disk_is_told_apart_from_what_is_only_being_looked_for() -> None:
    """Replicas are compared by it: a row of the disk that has ended is none of what a replica holds."""
    story, shelf = Story(), Shelf()
    rows = story.insert(NOON + 1000, NOON + 2000).waiting
    shelf.save(story.timeline)
    assert story.timeline.export()["tombstones"] == []
    story.request(RecordKind.CANCEL, rows[:1])
    assert story.timeline.export()["tombstones"] == keys_of(rows[:1]).tolist()

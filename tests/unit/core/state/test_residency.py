"""What memory holds of the rows, and notes of them."""

from __future__ import annotations

from dueq.core.state.residency import LOOSE_MAX
from dueq_codecs.records import Outcome, RecordKind
from tests.unit.core.state.test_timeline import NOON, Shelf, Story, u64


def test_records_that_change_nothing_leave_a_bounded_number_of_notes() -> None:
    """Nothing is to be saved after them, so there is no checkpoint that would have memory forget rows."""
    story, shelf = Story(), Shelf()
    rows = story.insert(NOON + 1000).waiting
    shelf.save(story.timeline)
    for _ in range(1_000):
        assert story.request(RecordKind.CANCEL, rows, expected=u64(99)) == [Outcome.CHANGED]
    assert len(story.timeline._residency._loose) <= LOOSE_MAX

"""What is read of a partition is what its replica holds now."""

from __future__ import annotations

from types import SimpleNamespace

from dueq.core.partition.contents import Contents
from dueq.core.state.timeline import Timeline
from tests.unit.core.state.test_timeline import NOON, UID, Story


def test_what_a_replica_was_filled_with_later_is_shown() -> None:
    """A snapshot is a timeline of its own. The one that the replica had before is empty."""
    partition = SimpleNamespace(timeline=Timeline(UID))
    contents = Contents(partition)
    assert contents.count == 0
    story = Story()
    story.lease(story.insert(NOON, NOON + 1000).waiting[:1])
    partition.timeline = story.timeline
    assert contents.count == 2
    assert contents.forecast(NOON, 2) == [(NOON + 1000, 1)]
    assert dict(contents.waiting_by_hour()) == {NOON // 3_600_000: 1}
    leased, more = contents.leased_after(0, 5)
    assert (leased["due"].tolist(), more) == ([NOON], False)

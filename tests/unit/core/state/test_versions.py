"""A message has a new version after each change that somebody wanted: changes may be made on condition of it."""

from __future__ import annotations

import pytest

from dueq.core.state.table import FEW
from dueq.core.state.timeline import Timeline
from dueq_codecs.records import LEVEL_OF_KINDS, Outcome, RecordKind
from dueq_codecs.topic_settings import TopicSettings
from tests.unit.core.state.test_timeline import NOON, UID, Story, u64


@pytest.mark.parametrize("most", [0, FEW], ids=["as many", "as few"])
def test_a_move_that_takes_an_unpushed_lease_back_makes_a_new_version(most: int) -> None:
    """Else a change on condition succeeds for somebody who has not seen the move."""
    story = Story(Timeline(UID, small_rows_max=most))
    document = TopicSettings(1, max_attempts=2).encode()
    story.apply(story.record(RecordKind.SETTINGS, version=LEVEL_OF_KINDS, document=document))
    story.request(RecordKind.MOVE, story.insert(NOON).waiting, due=u64(NOON + 1), version=LEVEL_OF_KINDS)
    leased = story.lease(story.last.waiting)
    moved = story.request(RecordKind.MOVE, leased, due=u64(NOON + 5), version=LEVEL_OF_KINDS)
    assert moved == [Outcome.DONE]
    assert story.last.waiting["version"].tolist() == [story.timeline.applied]

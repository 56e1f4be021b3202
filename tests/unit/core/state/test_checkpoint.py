"""What a checkpoint deletes from the disk beside what it writes."""

from __future__ import annotations

import numpy as np

from dueq.core.ports.entry import Entries, keys_of
from dueq_codecs.records import LEVEL_OF_KINDS, Fate, Outcome, RecordKind
from tests.unit.core.state.test_timeline import NOON, Story, u64


def refused_for_good(story: Story, waiting: Entries) -> Entries:
    """Lease messages and let them be dead; returns them as they were leased."""
    leased = story.lease(waiting)
    outcomes = story.request(
        RecordKind.NACK,
        leased,
        amount_ms=u64(0),
        fate=np.array([Fate.DEAD], np.uint8),
        version=LEVEL_OF_KINDS,
    )
    assert outcomes == [Outcome.DONE]
    return leased


def test_a_message_that_died_again_is_dead_on_the_disk_only_since_its_last_death() -> None:
    """It was redriven between two checkpoints. Its older row would be listed among the dead for ever."""
    story = Story()
    dead = refused_for_good(story, story.insert(NOON).waiting)
    first = story.timeline.checkpoint()
    assert first is not None
    assert first.put["died_at"].tolist() == [NOON]
    assert not len(first.undie), "it was not dead on the disk"
    story.stamp = NOON + 700
    redrive = story.named(RecordKind.REDRIVE, dead, due=u64(NOON + 700), version=LEVEL_OF_KINDS)
    story.timeline.prepare(redrive)
    refused_for_good(story, story.apply(redrive).waiting)
    story.timeline.checkpoint_saved(first.applied)
    second = story.timeline.checkpoint()
    assert second is not None
    assert second.put["died_at"].tolist() == [NOON + 700]
    assert second.undie.tolist() == [[NOON, int(keys_of(dead)[0])]]


def test_a_message_that_waits_for_the_instant_at_which_it_had_died_is_dead_on_the_disk_no_more() -> None:
    """It was redriven at once. It would be listed among the dead for ever, beside its delivery."""
    story = Story()
    dead = refused_for_good(story, story.insert(NOON).waiting)
    first = story.timeline.checkpoint()
    assert first is not None
    redrive = story.named(RecordKind.REDRIVE, dead, due=u64(NOON), version=LEVEL_OF_KINDS)
    story.timeline.prepare(redrive)
    assert story.apply(redrive).waiting["wait_at"].tolist() == [NOON]
    story.timeline.checkpoint_saved(first.applied)
    second = story.timeline.checkpoint()
    assert second is not None
    assert second.undie.tolist() == [[NOON, int(keys_of(dead)[0])]]

"""What consumers give back with a delay: when it waits again, and from when on it counts as tried."""

from __future__ import annotations

import numpy as np
import pytest

from dueq.core.ports.entry import Entries, are_triggered
from dueq.core.state.remarks import BYTES_PER_DIRTY
from dueq.core.state.timeline import Timeline
from dueq.limits import DELAY_MS_MAX, RELEASE_AGE_MS_MAX, RELEASE_DELAY_MS_MAX
from dueq_codecs.records import LEVEL_OF_KINDS, Fate, Outcome, RecordKind
from dueq_codecs.topic_settings import TopicSettings
from tests.unit.core.state.test_timeline import NOON, UID, Shelf, Story, u64


def tried_once(max_attempts: int = 2) -> tuple[Story, Entries]:
    """A message of a topic that tries each a few times, leased at its first instant."""
    story = Story()
    document = TopicSettings(1, max_attempts=max_attempts).encode()
    story.apply(story.record(RecordKind.SETTINGS, version=LEVEL_OF_KINDS, document=document))
    return story, story.lease(story.insert(NOON).waiting)


def released(story: Story, leased: Entries, delay_ms: int) -> Entries:
    """Give it back; returns it as it waits then, or nothing."""
    outcomes = story.request(RecordKind.RELEASE, leased, amount_ms=u64(delay_ms), version=LEVEL_OF_KINDS)
    assert outcomes == [Outcome.DONE]
    return story.last.waiting


def test_a_message_that_is_put_off_is_not_tried_until_it_has_waited_for_a_week() -> None:
    """A receiver that is away for some days, and says so each time, costs no message its attempts."""
    story, leased = tried_once()
    for stamp in range(NOON, NOON + RELEASE_AGE_MS_MAX + 1, RELEASE_AGE_MS_MAX // 4):
        story.stamp = stamp
        waiting = released(story, leased, 1_000)
        assert waiting["attempt"].tolist() == [0]
        leased = story.lease(waiting)
    story.stamp = NOON + RELEASE_AGE_MS_MAX + 1
    assert released(story, leased, 1_000)["attempt"].tolist() == [1]


def test_a_message_that_is_put_off_for_more_than_a_week_dies_in_the_end() -> None:
    story, leased = tried_once()
    story.stamp = NOON + RELEASE_AGE_MS_MAX + 1
    leased = story.lease(released(story, leased, 1_000))
    assert not len(released(story, leased, 1_000))
    assert (story.timeline.dead_count, story.timeline.live_count) == (1, 1)


def test_a_release_without_a_delay_is_never_an_attempt() -> None:
    story, leased = tried_once(max_attempts=1)
    story.stamp = NOON + RELEASE_AGE_MS_MAX + 1
    assert released(story, leased, 0)["attempt"].tolist() == [0]


@pytest.mark.parametrize(("kind", "stays"), [(RecordKind.RELEASE, True), (RecordKind.NACK, False)])
def test_a_trigger_lasts_until_its_message_was_tried(kind: RecordKind, stays: bool) -> None:
    """What its consumer never had is delivered though the topic is paused, or its rate is used up."""
    story = Story()
    waiting = story.insert(NOON + 5000).waiting
    assert story.request(RecordKind.TRIGGER, waiting, version=LEVEL_OF_KINDS) == [Outcome.DONE]
    leased = story.lease(story.last.waiting)
    outcomes = story.request(kind, leased, amount_ms=u64(0), version=LEVEL_OF_KINDS)
    assert outcomes == [Outcome.DONE]
    assert are_triggered(story.last.waiting).tolist() == [stays]
    assert (len(story.timeline.triggered), story.timeline.triggered_leased) == (int(stays), 0)


def test_a_restart_knows_how_many_triggered_messages_are_leased() -> None:
    story, shelf = Story(), Shelf()
    waiting = story.insert(NOON + 5000, NOON + 6000, NOON + 7000).waiting
    story.request(RecordKind.TRIGGER, waiting[:2], version=LEVEL_OF_KINDS)
    leased = story.lease(story.last.waiting)
    story.lease(waiting[2:])
    shelf.save(story.timeline)
    again = Story(Timeline(UID, recovered=shelf.recover()))
    assert again.timeline.triggered_leased == story.timeline.triggered_leased == 2
    again.number = story.number
    for each in (story, again):
        assert each.request(RecordKind.ACK, leased[:1], version=LEVEL_OF_KINDS) == [Outcome.DONE]
        assert each.request(RecordKind.RELEASE, leased[1:], version=LEVEL_OF_KINDS) == [Outcome.DONE]
        assert (len(each.timeline.triggered), each.timeline.triggered_leased) == (1, 0)


@pytest.mark.parametrize(
    ("kind", "longest"),
    [(RecordKind.RELEASE, RELEASE_DELAY_MS_MAX), (RecordKind.NACK, DELAY_MS_MAX)],
)
def test_nobody_puts_a_message_off_for_longer_than_he_may(kind: RecordKind, longest: int) -> None:
    story, leased = tried_once()
    story.request(kind, leased, amount_ms=u64(1 << 60), version=LEVEL_OF_KINDS)
    assert story.last.waiting["wait_at"].tolist() == [NOON + longest]


def test_long_reasons_bring_a_checkpoint_as_many_rows_do() -> None:
    """They are in memory until then, however few messages are given back with them time and again."""
    story, shelf = Story(), Shelf()
    leased = story.lease(story.insert(NOON).waiting)
    for times in (1, 2):
        story.request(
            RecordKind.NACK, leased, amount_ms=u64(0), reason=np.zeros(1, np.uint16),
            reasons=("x" * 8 * BYTES_PER_DIRTY,), version=LEVEL_OF_KINDS,
        )  # fmt: skip
        assert story.timeline.dirty_rows == 1 + 8 * times
        leased = story.lease(story.last.waiting)
    assert story.timeline.export()["remarks"]
    shelf.save(story.timeline)
    assert story.timeline.dirty_rows == 0
    assert not story.timeline.export()["remarks"]


def test_the_dead_are_counted_whether_they_are_in_memory_or_on_the_disk_alone() -> None:
    """Their leader looks for those that were kept for long enough only while there are some."""
    story, shelf = Story(Timeline(UID, hot_rows_max=2)), Shelf()
    waiting = story.insert(*[NOON] * 9).waiting
    story.request(
        RecordKind.NACK,
        story.lease(waiting),
        fate=np.full(9, Fate.DEAD, np.uint8),
        amount_ms=u64(*[0] * 9),
        version=LEVEL_OF_KINDS,
    )
    assert story.timeline.dead_count == 9
    shelf.save(story.timeline)
    assert (story.timeline.dead_count, story.timeline.memory_rows) == (9, 0)
    assert Timeline(UID, shelf.recover()).dead_count == 9

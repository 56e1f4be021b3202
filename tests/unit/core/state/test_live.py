"""What records do to some messages among others: to those with ranks, of open jobs, and with keys of others."""

from __future__ import annotations

import numpy as np

from dueq.core.state.applied import Applied
from dueq.core.state.order import order_of
from dueq.core.state.timeline import Timeline
from dueq_codecs.meta import Meta
from dueq_codecs.records import LEVEL_OF_KINDS, Fate, Outcome, Record, RecordKind, RequestRef
from dueq_codecs.rules import key_hashes
from tests.unit.core.state.test_timeline import ALICE, NOON, UID, Story, u64


def test_a_message_that_gets_another_rank_has_waited_for_as_long_as_before() -> None:
    """Among those of its new rank it would be the last again, each time that somebody changes it."""
    story = Story(Timeline(UID, order=order_of("priority")))
    waiting = story.insert(NOON + 1000).waiting
    story.stamp = NOON + 9000
    rank = np.array([3], np.uint16)
    assert story.request(RecordKind.CHANGE, waiting, rank=rank, version=LEVEL_OF_KINDS) == [Outcome.DONE]
    [changed] = story.last.waiting
    assert (changed["rank"], changed["due"], changed["wait_at"]) == (3, NOON + 1000, NOON + 1000)


def test_beside_a_message_of_an_open_job_others_are_leased() -> None:
    story = Story()
    story.insert(NOON)
    size = np.zeros(1, np.uint32)
    columns = {"due": u64(NOON), "size": size, "crc": size, "job": ALICE, "job_until": NOON + 1000}
    story.apply(story.record(RecordKind.INSERT, **columns))
    story.insert(NOON)
    applied = story.apply(story.lease_record(story.timeline.rows(u64(1 << 16, 2 << 16, 3 << 16))))
    assert applied.leased["sequence"].tolist() == [1, 3]
    assert applied.refused.tolist() == [2 << 16]
    assert story.timeline.leased_count == 2


def insert_keyed(story: Story, *keys: bytes) -> Applied:
    high, low = key_hashes(keys)
    size = np.full(len(keys), 3, np.uint32)
    record = story.record(
        RecordKind.INSERT, due=u64(*[NOON] * len(keys)), size=size, crc=size, key_high=high, key_low=low,
        keyed=Meta.KEY, version=LEVEL_OF_KINDS,
    )  # fmt: skip
    record.requests = (RequestRef(ALICE, record.sequence, 1, len(keys)),)
    return story.apply(record)


def redrive(story: Story, record: Record) -> Applied:
    """Apply it once it is known who has the keys of its messages."""
    record.requests = (RequestRef(ALICE, record.sequence, 1, len(record.first)),)
    assert story.timeline.cold(record) is None
    assert story.timeline.prepare(record) == (None, None)
    assert story.timeline.ready(record)
    return story.timeline.apply(record)


def test_of_dead_messages_those_come_back_whose_keys_nobody_has_taken_and_bear_them_again() -> None:
    story = Story()
    leased = story.lease(insert_keyed(story, b"a", b"b", b"c").waiting)
    fate, none = np.full(3, Fate.DEAD, np.uint8), u64(0, 0, 0)
    story.request(RecordKind.NACK, leased, amount_ms=none, fate=fate, version=LEVEL_OF_KINDS)
    assert len(insert_keyed(story, b"b").waiting) == 1
    due = u64(*[NOON + 1000] * 3)
    applied = redrive(story, story.named(RecordKind.REDRIVE, leased, due=due, version=LEVEL_OF_KINDS))
    assert applied.results[0].outcomes.tolist() == [Outcome.DONE, Outcome.TAKEN, Outcome.DONE]
    assert applied.waiting["row"].tolist() == [0, 2]
    [answer] = insert_keyed(story, b"a", b"c", b"d").results
    assert answer.outcomes.tolist() == [Outcome.TAKEN, Outcome.TAKEN, Outcome.DONE]

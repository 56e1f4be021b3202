"""Named scenarios of fair topics: groups take turns, and a partition has room for so many of them."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq_chaos.scenarios.hand import Hand, Request
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.messages import Code


def asked(stage: Stage, hand: Hand, *groups: str) -> Request:
    """Schedule a message of each group, whose payload says it, in one attempt."""
    payloads = [group.encode() for group in groups]
    return hand.insert(stage.leader, payloads, [stage.now_ms] * len(groups), groups=groups)


def test_a_group_with_one_message_is_next_however_many_another_has() -> None:
    stage = Stage(kind="fair")
    producer = stage.hand("producer")
    for _ in range(6):
        stage.settled(producer, asked(stage, producer, "big")).stored()
    stage.settled(producer, asked(stage, producer, "small")).stored()
    consumer = stage.hand("consumer")
    consumer.attach(stage.leader, credit=1, lease_ms=30_000)
    consumer.stay()
    for number in range(3):
        stage.until(lambda number=number: len(consumer.pushes) > number, "the next one")  # type: ignore[misc]
        stage.acked(consumer, consumer.pushes[number:])
    stage.expect([push.payload for push in consumer.pushes[:3]] == [b"big", b"small", b"big"], "turns")
    stage.finish()


def test_a_partition_that_is_full_of_groups_takes_messages_of_those_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "GROUPS_MAX", 2)
    stage = Stage(kind="fair")
    producer = stage.hand("producer")
    stage.settled(producer, asked(stage, producer, "a", "b")).stored()
    refused = asked(stage, producer, "a", "c")
    stage.until(lambda: refused.replies, "an answer")
    stage.expect(refused.replies[0].code == Code.BUSY, "there is no room for another group")
    stage.expect("has 2 groups, and may have 2" in refused.replies[0].text, refused.replies[0].text)
    stage.settled(producer, asked(stage, producer, "a", "b", "")).stored()
    stage.finish()

"""Changes about partitions that the topic has got: the first broker that is asked may not have heard of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Effect, Failed, Send
from dueq.errors import InvalidRequest
from dueq_codecs.messages import ChangeRequest, MetadataRequest
from dueq_codecs.records import RecordKind
from tests.unit.client.stage import TOPIC, Stage, of, sent

NO_CRC = np.zeros(1, np.uint32)


@pytest.fixture
def stage() -> Stage:
    """Two brokers, connected; they know of one partition, which has the uid 1."""
    stage = Stage(["a", "b"])
    stage.connect()
    stage.learn_topic()
    return stage


def insert(stage: Stage) -> events.Event:
    """A row for the second partition."""
    until_us, due = stage.at_us(stage.ms + 10_000), np.full(1, 5_000, np.uint64)
    found = events.Insert(7, until_us, TOPIC, [b""], due, np.zeros(1, np.uint32), NO_CRC)
    return replace(found, partition=1)


def cancel(stage: Stage) -> events.Event:
    """The cancel of a message of the partition with the uid 2."""
    return events.Alter(
        7, stage.at_us(stage.ms + 10_000), RecordKind.CANCEL, TOPIC, np.full(1, 5_000, np.uint64),
        np.full(1, 2, np.uint32), np.full(1, 90, np.uint64), np.zeros(1, np.uint16),
    )  # fmt: skip


def asked(effects: list[Effect]) -> Send:
    """The one question about the topic among these effects."""
    [found] = [each for each in of(effects, Send) if isinstance(each.message, MetadataRequest)]
    return found


@pytest.mark.parametrize("change", [insert, cancel])
def test_the_second_broker_may_know_of_them(stage: Stage, change: Callable[[Stage], events.Event]) -> None:
    first = stage.step(change(stage)) + stage.run_until(stage.ms + 60)
    second = stage.answer_metadata(first) + stage.run_until(stage.ms + 60)
    assert asked(first).link != asked(second).link
    stage.leaders = {1: "a", 2: "b"}
    [request] = sent(stage.answer_metadata(second), ChangeRequest)
    assert (request.uid, of(stage.effects, Failed)) == (2, [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (insert, "has 1 partitions, not one 1"),
        (cancel, "row 0: the message id is of partition 2, which topic 'departures' does not have"),
    ],
)
def test_where_no_broker_knows_of_them_they_are_refused(
    stage: Stage, change: Callable[[Stage], events.Event], said: str
) -> None:
    effects = stage.step(change(stage)) + stage.run_until(stage.ms + 60)
    effects = stage.answer_metadata(effects) + stage.run_until(stage.ms + 60)
    [failed] = of(stage.answer_metadata(effects), Failed)
    assert isinstance(failed.error, InvalidRequest)
    assert said in str(failed.error)

"""Requests that several callers share: each caller hears what became of its own rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dueq import ids
from dueq.client import calls
from dueq.client.core.ports.effects import Completed, Failed
from dueq.client.core.ports.parts import Placed
from dueq.errors import KeyTaken, OutcomeUnknown
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code
from dueq_codecs.records import Outcome
from dueq_codecs.topic_settings import TopicSettings
from tests.unit.client.stage import TOPIC, Stage, of, ok, sent

DUE = 10**12
THERE = ids.MessageId(7_000, 1, 40, 3)
"""The message that a key names already."""


@pytest.fixture
def stage() -> Stage:
    """One broker, one partition with unique keys, connected, topic known."""
    stage = Stage(settings=TopicSettings(version=1, keys="unique").encode())
    stage.connect()
    stage.learn_topic()
    return stage


def schedule(stage: Stage, call: int, *names: str, **options: object) -> list[ChangeRequest]:
    """A caller schedules messages with these keys; returns the requests that go out for it."""
    event = calls.schedule_many(TOPIC, [b"x"] * len(names), DUE, lambda: 0, keys=names, **options)  # type: ignore[arg-type]
    return sent(stage.step(event.build(call, stage.at_us(stage.ms + 30_000))), ChangeRequest)


def shared(stage: Stage, *callers: tuple[str, ...], **options: object) -> ChangeRequest:
    """The callers wait for the answer to an earlier request, then share one; they have the numbers from 1 on."""
    [first] = schedule(stage, 100, "first")
    for call, names in enumerate(callers, 1):
        assert not schedule(stage, call, *names, **options)
    [request] = sent(stage.receive("a", ok(first, 90)), ChangeRequest)
    assert request.rows == sum(map(len, callers))
    return request


def met(request: ChangeRequest, outcomes: list[Outcome]) -> ChangeReply:
    """The rows that were not taken have met one message after the other of the record that `THERE` is of."""
    count = sum(outcome is not Outcome.DONE for outcome in outcomes)
    return replace(
        ok(request, 91, outcomes=outcomes),
        present_first=np.full(count, THERE.first, np.uint64),
        present_sequence=np.full(count, THERE.sequence, np.uint64),
        present_row=np.arange(count, dtype=np.uint16),
        present_due=np.arange(8_000, 8_000 + count, dtype=np.uint64),
    )


def test_each_caller_hears_which_messages_its_own_rows_have_met(stage: Stage) -> None:
    request = shared(stage, ("a", "b"), ("c",), ("d", "e"), on_duplicate="keep")
    kept, new = Outcome.KEPT, Outcome.DONE
    done = of(stage.receive("a", met(request, [kept, new, kept, new, kept])), Completed)
    found = [[each for each in call.value.placed() if isinstance(each, Placed)] for call in done]
    rows = [[ids.from_text(each.id)[2:] for each in call] for call in found]
    assert rows == [[(40, 0), (91, 1)], [(40, 1)], [(91, 3), (40, 2)]]
    assert [[each.due_ms for each in call] for call in found] == [[8_000, DUE], [8_001], [DUE, 8_002]]


def test_a_key_that_a_hidden_job_holds_is_taken_by_a_message_that_is_not_named(stage: Stage) -> None:
    """Whether there will ever be such a message is not decided before its job is committed."""
    request = shared(stage, ("a", "b"))
    outcomes = [Outcome.TAKEN, Outcome.HIDDEN]
    [done] = of(stage.receive("a", met(request, outcomes)), Completed)
    taken, hidden = done.value.found()
    assert isinstance(taken, KeyTaken)
    assert isinstance(hidden, KeyTaken)
    assert (taken.present, hidden.present) == (ids.to_text(THERE._replace(row=0)), None)
    assert "of a job that is not committed yet" in str(hidden)


def test_each_caller_gets_the_instants_that_were_chosen_for_its_own_rows(stage: Stage) -> None:
    request = shared(stage, ("a", "b"), ("c",), window=60)
    chosen = replace(ok(request, 91), window=np.array([1, 20, 300], np.uint32))
    done = of(stage.receive("a", chosen), Completed)
    assert [[each.due_ms - DUE for each in call.value.placed()] for call in done] == [[1, 20], [300]]


def test_what_may_have_been_appended_is_not_cut_up_when_its_repetition_is_refused(stage: Stage) -> None:
    """Under new numbers nobody would know the rows again: they would be there twice."""
    request = shared(stage, ("a",), ("b",))
    assert sent(stage.run_until(stage.ms + 1_100), ChangeRequest) == [request]
    effects = stage.receive("a", ChangeReply(request.request_id, Code.INVALID_REQUEST, "why"))
    assert [(failed.call, type(failed.error)) for failed in of(effects, Failed)] == [
        (1, OutcomeUnknown), (2, OutcomeUnknown),
    ]  # fmt: skip
    assert not sent(effects + stage.run_until(stage.ms + 5_000), ChangeRequest)

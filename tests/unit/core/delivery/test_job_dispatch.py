"""Dispatch and jobs: what may not be delivered costs nothing, and comes at once when it may."""

from __future__ import annotations

import numpy as np

from dueq_codecs.records import JobAction, Outcome, Record, RecordKind, RequestRef
from tests.unit.core.led import START_MS, Led, Stage, at, keys_in

JOB = b"j" * 16
UNTIL_MS = 1_000
"""After the start: by then the job of these tests must be committed."""


def load(stage: Stage, *dues_ms: int) -> list[int]:
    """Insert hidden messages and commit; returns their keys."""
    led = stage.leds[1]
    record = Record(RecordKind.INSERT, led.uid, 0, 0, 0, job=JOB, job_until=START_MS + UNTIL_MS)
    record.due = np.array([START_MS + due for due in dues_ms], np.uint64)
    record.size = np.full(len(dues_ms), 4, np.uint32)
    record.crc = np.zeros(len(dues_ms), np.uint32)
    record.requests = (RequestRef(b"p" * 16, led.sequence + 1, led.sequence + 1, len(dues_ms)),)
    sequence = led.append(record, at(0))
    keys = [sequence << 16 | row for row in range(len(dues_ms))]
    led.payloads |= dict.fromkeys(keys, b"body")
    stage.commit(0)
    return keys


def decide(stage: Stage, action: JobAction, ms: float) -> Outcome:
    """Apply a decision that another partition has made."""
    led: Led = stage.leds[1]
    record = Record(
        RecordKind.JOB, led.uid, 0, 0, 0, job=JOB, job_until=START_MS + UNTIL_MS, job_action=action
    )
    record.requests = (RequestRef(b"d" * 16, led.sequence + 1, 1, 1),)
    led.append(record, at(ms))
    [applied] = stage.commit(ms)
    return Outcome(applied.results[0].outcomes[0])


def test_what_is_undecided_is_looked_at_once_and_pushed_when_it_is_committed() -> None:
    stage = Stage()
    stage.attach(0)
    keys = load(stage, 100, 200)
    assert stage.run(UNTIL_MS + 50) == []
    before = len(stage.leds[1].log)
    deadline_us = stage.dispatcher.next_deadline_us(at(UNTIL_MS + 50))
    assert deadline_us is None or deadline_us > at(UNTIL_MS + 50).mono_us, "it does not spin"
    assert stage.run(UNTIL_MS + 90) == []
    assert len(stage.leds[1].log) == before, "no lease was proposed"
    stage.leds[1].timeline.jobs.is_home = lambda job: False  # type: ignore[method-assign]
    assert decide(stage, JobAction.COMMIT, UNTIL_MS + 100) == Outcome.DONE
    [push] = stage.run(UNTIL_MS + 100)
    assert keys_in(push) == keys


def test_what_is_aborted_is_never_proposed() -> None:
    stage = Stage()
    stage.attach(0)
    load(stage, 100)
    decide(stage, JobAction.ABORT, 500)
    before = len(stage.leds[1].log)
    assert stage.run(UNTIL_MS + 50) == []
    assert len(stage.leds[1].log) == before


def test_a_lease_that_was_granted_ahead_goes_back_when_its_job_is_cancelled() -> None:
    stage = Stage()
    stage.attach(0)
    load(stage, UNTIL_MS + 200)
    decide(stage, JobAction.COMMIT, 500)
    assert stage.run(UNTIL_MS + 180) == [], "leased, not due"
    timeline = stage.leds[1].timeline
    assert timeline.leased_count == 1
    decide(stage, JobAction.CANCEL, UNTIL_MS + 190)
    assert stage.run(UNTIL_MS + 200) == []
    assert timeline.live_count == 0

"""The verdicts on messages that consumers have said are dead, and on the dead that go."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dueq.core.ports.entry import State
from dueq.core.state.pass_table import PassState
from dueq_chaos.sim.judging.fates import Fates
from dueq_chaos.sim.reference.naive_entry import NaiveEntry
from dueq_codecs.records import JobState, Record, RecordKind, RequestRef

TOKEN, SEQUENCE = 10, 7
KEY = SEQUENCE << 16


def nacked(doomed: set[int], unsure: set[int], token: int = TOKEN) -> str:
    """Return what is wrong with a NACK that lets a leased message wait again."""
    entry = NaiveEntry(0, 0, SEQUENCE, 0, 0, 0, 0, 0, 0, 0, state=State.LEASED, token=TOKEN)
    naive: Any = SimpleNamespace(live={KEY: entry}, keys=SimpleNamespace(replaced=()))
    fates = Fates()
    fates.of(KEY).doomed, fates.of(KEY).unsure = doomed, unsure
    record = Record(RecordKind.NACK, 1, 11, 1, 0)
    record.token = np.array([token], np.uint64)
    record.target_sequence, record.target_row = np.array([SEQUENCE], np.uint64), np.array([0], np.uint16)
    fates.before(record, naive)
    entry.state, entry.token = (State.WAITING, 0) if token == TOKEN else (entry.state, entry.token)
    return fates.after(record, naive)


def test_who_was_said_to_be_dead_does_not_wait_again() -> None:
    wrong = nacked({TOKEN}, set())
    assert wrong == f"record 11, a NACK: 7:0 is never to come again, by the lease {TOKEN}, and waits"


@pytest.mark.parametrize(
    ("doomed", "unsure", "token"),
    [({TOKEN - 1}, set(), TOKEN), ({TOKEN}, {TOKEN}, TOKEN), ({TOKEN - 1}, set(), TOKEN - 1)],
    ids=["by an older lease", "perhaps given back otherwise", "a stale nack"],
)
def test_what_says_nothing_of_that_is_right(doomed: set[int], unsure: set[int], token: int) -> None:
    assert nacked(doomed, unsure, token) == ""


@pytest.mark.parametrize(
    ("job", "wrong"),
    [(JobState.COMMITTED, "record 11, a REDRIVE: 7:0 is dead, and goes"), (JobState.CANCELLED, "")],
    ids=["of a committed job", "of a cancelled job"],
)
def test_a_dead_message_that_is_redriven_goes_only_with_its_job(job: JobState, wrong: str) -> None:
    entry = NaiveEntry(0, 0, SEQUENCE, 0, 0, 0, 0, 0, 0, 1, state=State.DEAD)
    naive: Any = SimpleNamespace(
        live={KEY: entry},
        keys=SimpleNamespace(replaced=()),
        jobs=SimpleNamespace(state_of=lambda entry: job),
    )
    fates = Fates()
    record = Record(RecordKind.REDRIVE, 1, 11, 1, 0)
    record.requests = (RequestRef(b"c" * 16, 1, 0, 1),)
    record.target_sequence, record.target_row = np.array([SEQUENCE], np.uint64), np.array([0], np.uint16)
    fates.before(record, naive)
    naive.live.clear()
    assert fates.after(record, naive) == wrong


def ended(given_back: int, applied: int, state: str = "waiting") -> str:
    """Return what is wrong with the end of a pass over a message that was leased when it began.

    Args:
        given_back: how many records gave something back meanwhile: that message first.
        applied: how many of them the leader had applied when it ended the pass.
        state: of the messages that it is about.
    """
    begun = 10
    entry = NaiveEntry(
        0, 0, SEQUENCE, 0, 0, 0, 0, 0, 0, 1, state=State.DEAD if state == "dead" else State.WAITING
    )
    known = SimpleNamespace(
        state=PassState.ENDED, sequence=begun, work={"do": "cancel", "filter": {"state": state}}
    )
    naive: Any = SimpleNamespace(
        live={KEY: entry},
        keys=SimpleNamespace(replaced=()),
        jobs=SimpleNamespace(state_of=lambda entry: JobState.COMMITTED, by_number={}),
        groups=SimpleNamespace(names={}),
        passes=SimpleNamespace(by_name={"p": known}),
    )
    fates = Fates()
    for at in range(given_back):
        expires = Record(RecordKind.EXPIRE, 1, begun + 1 + at, 1, 0)
        expires.target_sequence = np.array([SEQUENCE + at], np.uint64)
        expires.target_row = np.array([0], np.uint16)
        fates.before(expires, naive)
    record = Record(RecordKind.PASS, 1, begun + 100, 1, 0, name="p")
    record.document = '{"do":"end"}'
    fates.ends(record, begun + applied)
    fates.before(record, naive)
    return fates.after(record, naive)


def test_a_pass_meets_what_was_given_back_meanwhile() -> None:
    assert ended(1, 1).startswith("the pass p ends, and has left 7:0")


@pytest.mark.parametrize(
    ("given_back", "applied", "state"),
    [(1, 0, "waiting"), (3, 3, "waiting"), (1, 1, "dead")],
    ids=["after it was ended", "too often", "of the dead"],
)
def test_a_pass_need_not_meet_all_that_was_given_back(given_back: int, applied: int, state: str) -> None:
    assert ended(given_back, applied, state) == ""


def test_a_pass_that_was_stopped_before_it_began_need_not_meet_the_messages_of_open_jobs() -> None:
    entry = NaiveEntry(0, 0, SEQUENCE, 0, 0, 0, 0, 0, 0, 1, state=State.WAITING)
    job = SimpleNamespace(state=JobState.OPEN)
    naive: Any = SimpleNamespace(
        live={KEY: entry},
        keys=SimpleNamespace(replaced=()),
        jobs=SimpleNamespace(state_of=lambda entry: job.state, by_number={}),
        groups=SimpleNamespace(names={}),
        passes=SimpleNamespace(by_name={}),
    )
    fates = Fates()
    assert of_the_pass(fates, naive, 5, "stop") == ""
    naive.jobs.by_number[entry.job] = job
    known = SimpleNamespace(
        state=PassState.RUNNING, sequence=10, work={"do": "cancel", "filter": {"state": "waiting"}}
    )
    naive.passes.by_name["p"] = known
    assert of_the_pass(fates, naive, 10, "cancel") == ""
    job.state, known.state = JobState.COMMITTED, PassState.ENDED
    assert of_the_pass(fates, naive, 12, "end") == ""


def of_the_pass(fates: Fates, naive: Any, sequence: int, do: str) -> str:
    """Return what is wrong with this record of a pass."""
    record = Record(RecordKind.PASS, 1, sequence, 1, 0, name="p")
    record.document = json.dumps({"do": do})
    fates.before(record, naive)
    return fates.after(record, naive)

"""How long messages that are given back wait, as the leader writes it into the record."""

from __future__ import annotations

import numpy as np

from dueq.core.partition.back_off import decide, delays
from dueq.core.ports.entry import ENTRY, Entries
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.records import Fate, Record, RecordKind
from dueq_codecs.topic_settings import TopicSettings

UID = 3
DOUBLING = {"first_ms": 1_000, "factor": 2, "longest_ms": 60_000, "jitter": 0.0, "doublings": None}


def tried(*attempts: int) -> Entries:
    """Messages that have just been tried for the so-manieth time."""
    rows = np.zeros(len(attempts), ENTRY)
    rows["sequence"], rows["row"] = 7, np.arange(len(attempts))
    rows["attempt"] = attempts
    return rows


def settings(**changes: object) -> TopicSettings:
    return TopicSettings(1, backoff={**DOUBLING, **changes})


def test_each_attempt_waits_as_long_as_its_number_says() -> None:
    assert delays(UID, settings(), tried(1, 2, 3, 7)).tolist() == [1_000, 2_000, 4_000, 60_000]


def test_chance_is_the_same_for_one_attempt_and_another_for_each_message_and_attempt() -> None:
    jittery = settings(factor=1, jitter=0.5)
    rows = tried(*[1] * 50, *[2] * 50)
    found = delays(UID, jittery, rows).tolist()
    assert delays(UID, jittery, rows).tolist() == found
    assert all(500 <= delay <= 1_500 for delay in found)
    assert len(set(found)) > 80
    assert delays(UID + 1, jittery, rows).tolist() != found


def test_only_rows_that_ask_for_the_back_off_get_it() -> None:
    """The others wait as they wish, or are dead; no follower hears of a back-off."""
    own, dead = (ChangeRequest(number, RecordKind.NACK, "t", UID, b"c" * 16, number, 0) for number in (1, 2))
    own.target_sequence = dead.target_sequence = np.array([7, 7], np.uint64)
    dead.fate = np.array([Fate.BACK_OFF, Fate.DEAD], np.uint8)
    dead.reasons, dead.reason = ("too late", "too long"), np.array([1, 0], np.uint16)
    record = Record(RecordKind.NACK, UID, 9, 1, 0)
    record.amount_ms = np.array([5, 6, 7, 8], np.uint64)
    decide(record, [own, dead], settings(), tried(3, 3, 3, 3))
    assert record.amount_ms.tolist() == [5, 6, 4_000, 8]
    assert record.fate.tolist() == [Fate.DELAY, Fate.DELAY, Fate.DELAY, Fate.DEAD]
    assert [record.reasons[place] for place in record.reason.tolist()] == ["", "", "too long", "too late"]

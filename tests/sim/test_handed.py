"""The verdict on what has left: no attempt is counted of what was never pushed, and no token goes to two processes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from dueq_chaos.sim.judging.handed import Handed
from dueq_codecs.messages import Push
from dueq_codecs.pushes import PUSH_ROW
from dueq_codecs.records import Record, RecordKind

NAME = b"n" * 16
TOKEN = 10


def push(attach: int, token: int = TOKEN, consumer_id: bytes = NAME) -> Push:
    rows = np.zeros(1, PUSH_ROW)
    rows["uid"], rows["sequence"], rows["token"] = 1, 7, token
    return Push("t", consumer_id, attach, 1, 1, 0, "b1", rows, 1, 0)


def expire(sequence: int, epoch: int = 1, token: int = TOKEN) -> Record:
    record = Record(RecordKind.EXPIRE, 1, sequence, epoch, 0)
    record.token = np.array([token], np.uint64)
    record.target_sequence, record.target_row = np.array([7], np.uint64), np.array([0], np.uint16)
    return record


def handed(epochs: Mapping[int, int]) -> Handed:
    return Handed(lambda uid, sequence: epochs.get(sequence))


def test_a_lease_runs_out_only_if_it_was_pushed() -> None:
    pushes = handed({TOKEN: 1})
    assert pushes.ran_out(expire(11)) == f"the lease {TOKEN} of message 7:0 ran out, and it was never pushed"
    assert pushes.leaves(push(1)) == ""
    assert pushes.ran_out(expire(12)) == ""


@pytest.mark.parametrize("epochs", [{TOKEN: 1}, {}], ids=["of another leader", "not known"])
def test_what_a_leader_has_inherited_may_have_been_pushed(epochs: Mapping[int, int]) -> None:
    assert handed(epochs).ran_out(expire(11, epoch=2)) == ""


def test_what_another_replica_shows_is_no_news() -> None:
    pushes = handed({TOKEN: 1, 20: 1})
    pushes.leaves(push(1))
    pushes.ran_out(expire(12))
    assert pushes.ran_out(expire(11, token=20)) == ""


def test_a_later_process_of_a_name_is_given_another_token() -> None:
    pushes = handed({})
    for life in (1_000, 2_000):
        pushes.begins(NAME, life)
    assert pushes.leaves(push(1_001)) == pushes.leaves(push(1_005)) == ""
    assert "under the token 10 that the one of 1000 was given" in pushes.leaves(push(2_001))
    assert pushes.leaves(push(2_001, token=30)) == ""


def test_who_has_no_name_is_given_what_it_lacks_again() -> None:
    pushes = handed({})
    assert pushes.leaves(push(1)) == pushes.leaves(push(2)) == ""

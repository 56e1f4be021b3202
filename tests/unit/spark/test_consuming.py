"""Which messages a micro-batch takes, without Spark and without a mesh."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from dueq import ids
from dueq.errors import DueqError, OutcomeUnknown, StaleLease
from dueq.spark.consuming import Consumption, Leases
from dueq.testing import Mesh, mesh


def made(due: int, since: int) -> Any:
    """A message that waits since an instant."""
    message_id = ids.to_text(ids.MessageId(since, 1, 1, 0))
    return SimpleNamespace(due=due, id=message_id, version=1, lost=False, lease=60.0)


class Clock(Leases):
    """A consumer that has some messages, and a clock that goes on by what is waited."""

    def __init__(self, *dues: int, slack_s: float) -> None:
        self._what = Consumption("t", (), 10, 60.0, 0.2, slack_s)
        self._held: list[Any] = []
        self._ended = threading.Event()
        self._consumer: Any = self
        self._left = [made(due, due) for due in dues]
        self._at_ms = 10_000
        self.released: list[int] = []
        self._ended.wait = self._wait  # type: ignore[method-assign, assignment]

    def now_ms(self) -> int:
        return self._at_ms

    def _wait(self, seconds: float) -> bool:
        self._at_ms += round(seconds * 1000)
        return False

    def receive(self, max_messages: int, timeout: float) -> list[Any]:
        taken, self._left = self._left[:max_messages], self._left[max_messages:]
        return taken

    def release(self, messages: list[Any]) -> None:
        self.released = [message.due for message in messages]
        self._left = []


def test_what_is_due_just_now_is_held_back_for_others() -> None:
    leases = Clock(9_000, 9_900, slack_s=0.5)
    assert [message.due for message in leases._receive(None)] == [9_000]
    assert leases._receive(None) == []


def test_a_query_that_takes_what_there_is_waits_for_what_it_holds_back() -> None:
    leases = Clock(9_000, 9_900, 9_800, 20_000, slack_s=0.5)
    assert [message.due for message in leases._receive(10_000)] == [9_000]
    assert [message.due for message in leases._receive(10_000)] == [9_800, 9_900]
    assert leases._receive(10_000) == []


def test_a_query_that_takes_what_there_is_is_not_ended_by_what_is_due_later() -> None:
    leases = Clock(20_000, 9_000, slack_s=0.0)
    leases._what = replace(leases._what, max_messages=1, slack_s=None)
    assert [message.due for message in leases._receive(10_000)] == [9_000]
    assert leases.released == [20_000]


def test_a_query_that_takes_what_there_is_ends_though_others_schedule_at_once() -> None:
    """What is due when it is scheduled has an instant long ago, or none."""
    leases = Clock(slack_s=0.0)
    leases._what = replace(leases._what, slack_s=None)
    leases._left = [made(0, 9_000), made(0, 10_001), made(500, 10_001), made(500, 10_000)]
    assert [message.due for message in leases._receive(10_000)] == [0, 500]
    assert leases.released == [0, 500]


def test_a_query_that_takes_what_there_is_takes_what_was_moved_or_triggered_to_be_due() -> None:
    with mesh() as dueq_mesh:
        client = dueq_mesh.client()
        client.create_topic("t")
        producer, tomorrow = client.producer("t"), dueq_mesh.now_ms + 86_400_000
        moved, triggered = producer.schedule_many([b"moved", b"triggered"], tomorrow)
        producer.move(moved, dueq_mesh.now_ms)
        client.trigger("t", triggered)
        dueq_mesh.advance(1)
        found = InTest(dueq_mesh)._receive(dueq_mesh.now_ms)
        assert sorted(message.payload for message in found) == [b"moved", b"triggered"]


@pytest.mark.parametrize("error", [StaleLease("the lease was over", []), OutcomeUnknown("no answer in time")])
def test_a_query_goes_on_though_what_is_due_later_could_not_be_given_back(error: DueqError) -> None:
    """It waits for up to 3 s for what is due by now: a lease may be shorter."""

    class Stale(Clock):
        def release(self, messages: list[Any]) -> None:
            super().release(messages)
            raise error

    leases = Stale(20_000, 9_000, slack_s=0.0)
    leases._what = replace(leases._what, max_messages=1, slack_s=None)
    assert [message.due for message in leases._receive(10_000)] == [9_000]


def test_what_is_held_back_keeps_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be held back for longer than a lease lasts: it came again and again, until it was dead."""
    leases, extended = Clock(9_000, 9_900, slack_s=0.5), []

    def extend(messages: list[Any], seconds: float) -> None:
        extended.append(([message.due for message in messages], seconds))

    turns = iter([False, True])
    monkeypatch.setattr(leases, "extend", extend, raising=False)
    leases._lock, leases._under_way = threading.Lock(), {}
    leases._receive(None)
    leases._ended.wait = lambda seconds: next(turns)  # type: ignore[method-assign, assignment, misc]
    leases._keep()
    assert extended == [([9_900], 60.0)]


class InTest(Leases):
    """A consumer of a mesh inside the test; nobody keeps its leases."""

    def __init__(self, dueq_mesh: Mesh) -> None:
        self._what = Consumption("t", (), 10, 60.0, 0.2, None)
        self._client = dueq_mesh.client()
        self._consumer = self._client.consumer("t", lease=60.0, credit=20)
        self._index = self._placed()
        self._held, self._under_way = [], {}
        self._lock, self._ended = threading.Lock(), threading.Event()


def test_what_came_during_a_long_micro_batch_lasts_until_its_lease_is_extended() -> None:
    """It was lost while it was worked on, and came again though nothing had failed."""
    with mesh() as dueq_mesh:
        producer_of = dueq_mesh.client()
        producer_of.create_topic("t")
        leases = InTest(dueq_mesh)
        producer = producer_of.producer("t")
        producer.schedule(b"first", 0)
        assert leases.take(1, None) is not None
        producer.schedule(b"second", 0)
        dueq_mesh.advance(45)  # the first micro-batch is worked on
        assert leases.take(2, None) is not None
        [message] = leases._under_way[2][0]
        dueq_mesh.advance(60 / 3)  # until leases are extended again
        assert not message.lost


def test_messages_of_partitions_that_were_added_say_so() -> None:
    """Their partition was null until the query was started anew."""
    with mesh() as dueq_mesh:
        owner = dueq_mesh.client()
        owner.create_topic("t")
        leases = InTest(dueq_mesh)
        producer = owner.producer("t")
        producer.schedule(b"x", 0)
        first = leases.take(1, None)
        assert first is not None
        assert first.column("partition").to_pylist() == [0]
        owner.update_topic("t", partitions=3)
        dueq_mesh.advance(1)
        for _ in range(9):
            producer.schedule(b"x", 0)
        second = leases.take(2, None)
        assert second is not None
        assert {*second.column("partition").to_pylist()} == {0, 1, 2}

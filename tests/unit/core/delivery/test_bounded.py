"""Tables of the core that must not grow with what has happened, only with what there is."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.delivery.consumers import Consumers
from dueq.core.delivery.lane import BATCHES_MAX
from dueq.core.delivery.resending import AGAIN_MAX
from dueq.core.turn.deadlines import Deadlines
from dueq.core.turn.metrics import CoreMetrics
from dueq_codecs.messages import PushChunk
from tests.unit.core.delivery.test_pausing import configure, paused, resumed
from tests.unit.core.led import Stage, at, keys_in


def test_a_far_deadline_that_moves_all_the_time_leaves_nothing_behind() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for turn in range(10_000):
        deadlines.set("near", turn + 1)
        deadlines.set("far", 3_600_000_000 + turn)
    assert len(deadlines._heap) <= 2 * 2 + 64
    assert deadlines.take_due(10_000) == ["near"]
    assert deadlines.next_us() == 3_600_000_000 + 9_999


def test_consumers_that_come_and_go_leave_the_line_behind_one_that_has_credit() -> None:
    consumers = Consumers()
    first = consumers.open(b"f" * 16, at(0))
    first.credit, first.reachable = 10, True
    consumers.offer(first, at(0))
    for number in range(5_000):
        session = consumers.open(number.to_bytes(16, "big"), at(0))
        session.credit, session.reachable = 10, True
        consumers.offer(session, at(0))
        assert consumers.free_rows(at(0), 1) == 1
        consumers.drop(session)
    assert len(consumers._line) <= 3
    assert first in [session for _, _, session in consumers._line]


def test_consumers_that_fill_up_leave_the_line_before_they_come_again() -> None:
    """The look ends at another one, which has credit enough."""
    consumers = Consumers()
    roomy, narrow = (consumers.open(name * 16, at(0)) for name in (b"r", b"n"))
    for session, credit in ((narrow, 1), (roomy, 10)):
        session.credit, session.reachable = credit, True
        consumers.offer(session, at(0))
    for _ in range(1_000):
        narrow.rows_out = 1
        assert consumers.free_rows(at(0), 1) == 1
        narrow.rows_out = 0
        consumers.offer(narrow, at(0))
    assert len(consumers._line) == 2
    assert consumers.free_rows(at(0), 100) == 11


def test_what_was_counted_of_a_topic_goes_with_it() -> None:
    metrics = CoreMetrics()
    for topic in ("kept", "deleted"):
        metrics.messages["push", topic] += 1
        metrics.redelivered[topic] += 1
        metrics.lateness_of(topic).observe(1)
    metrics.forget("deleted")
    assert (set(metrics.messages), set(metrics.redelivered)) == ({("push", "kept")}, {"kept"})
    assert set(metrics.lateness) == {"kept"}


def test_attaches_without_end_while_nothing_may_be_pushed_are_noted_a_bounded_number_of_times() -> None:
    stage = Stage()
    stage.attach(0)
    [push] = [push for keys in [stage.insert([10, 10])] if keys for push in stage.run(10)]
    for attach in range(2, 3 * AGAIN_MAX):
        stage.attach(20, attach=attach)
        stage.tick(20, paused=True)
    assert len(stage.dispatcher._resending.again) <= AGAIN_MAX
    [again] = stage.run(30)
    assert keys_in(again) == keys_in(push)


def test_attaches_without_end_in_a_pause_leave_a_bounded_number_of_batches() -> None:
    stage = Stage()
    stage.attach(0)
    [push] = [push for keys in [stage.insert([10, 10])] if keys for push in stage.run(10)]
    configure(stage, 15, paused())
    for attach in range(2, 2 * BATCHES_MAX):
        stage.attach(20, attach=attach)
        assert stage.run(20) == []
    assert len(stage.dispatcher._lanes[1]._pending) <= BATCHES_MAX
    configure(stage, 25, resumed())
    [again] = stage.run(30)
    assert keys_in(again) == keys_in(push)


@pytest.mark.parametrize("pushed_before", [False, True], ids=["for the first time", "again"])
def test_attaches_while_the_disk_is_slow_ask_for_each_long_payload_once(pushed_before: bool) -> None:
    """Each attach has the chunks of what is on its way sent anew. They wait for the disk, and it may hang."""
    stage = Stage()
    keys = stage.insert([10] * 9, size=30 * limits.CHUNK_BYTES, upload=77)
    stage.attach(0, credit_bytes=1 << 40)
    stage.run(10)
    if pushed_before:
        stage.read_payloads(11)
        assert stage.run(12)
    for attach in range(2, 300):
        stage.attach(20, attach=attach, number=attach, credit_bytes=1 << 40)
        stage.tick(20)
    assert len(stage.dispatcher._stager._uploads) <= len(keys)
    stage.read_payloads(30)
    chunks = [m for _, m, _ in stage.sent if isinstance(m, PushChunk) and m.attach == 299]
    assert {m.row for m in chunks} == set(range(9))
    (push,) = stage.run(31)
    assert sorted(keys_in(push)) == keys

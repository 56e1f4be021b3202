"""Ids: twice in one request, under a wrong instant, of nothing, hot and cold, moved and not.

Whatever a request names, every replica must come to the same, also one that applies it later and with other rows in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from dueq.core.state.table import OnDisk
from dueq_chaos.scenarios.hand import Hand, Pushed, Stored
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.records import Outcome, RecordKind

HOUR_MS = 3_600_000
DONE, NOT_FOUND, STALE = Outcome.DONE, Outcome.NOT_FOUND, Outcome.STALE


class IdStage(Stage):
    """Sixty messages due from an hour on, of which memory holds the first few; some have been moved."""

    def __init__(self) -> None:
        super().__init__(hot_rows_total=16)
        self.producer = self.hand("producer")
        dues = [self.now_ms + HOUR_MS + 1000 * n for n in range(60)]
        self.messages = self.stored(*[b"%d" % n for n in range(60)], dues=dues)
        self.moved = self.messages[50:54]
        later = [self.now_ms + 2 * HOUR_MS + n for n in range(len(self.moved))]
        self.settled(self.producer, self.producer.move(self.leader, self.moved, later))
        self.run_ms(6_000)

    def ask(self, kind: RecordKind, named: list[Stored]) -> list[Outcome]:
        """Cancel, or move to a day ahead."""
        by = self.producer
        days = [self.now_ms + 24 * HOUR_MS + n for n in range(len(named))]
        request = (
            by.cancel(self.leader, named) if kind == RecordKind.CANCEL else by.move(self.leader, named, days)
        )
        return self.settled(by, request).outcomes

    def catch_up(self) -> None:
        """Cut a follower off, insert and lease, let it come back: it holds those leases with their INSERTs ahead."""
        follower = next(name for name in self.names if name != self.leader)
        eater = self.hand("eater")
        eater.attach(self.leader, lease_ms=30_000)
        eater.stay()
        self.isolate(follower)
        for _ in range(3):
            self.delivered(eater, *self.stored(b"now", due=self.now_ms, by="other"))
        self.network.heal()
        self.run_ms(4_000)

    def finish(self) -> None:
        """As the base checks; and the counts of placeholders are right."""
        super().finish()
        for name in self.names:
            table = self.replica(name).timeline._table
            assert table.placeholders == np.count_nonzero(table.disk == OnDisk.UNKNOWN) == 0, name


def wrong(message: Stored, by_ms: int = 1) -> Stored:
    """The same key with another first instant."""
    return message._replace(first=message.first + by_ms)


@pytest.mark.parametrize("kind", [RecordKind.CANCEL, RecordKind.MOVE])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_moved_cold_message_is_named_twice_once_under_a_wrong_instant(
    kind: RecordKind, *, swapped: bool
) -> None:
    stage = IdStage()
    named = [wrong(stage.moved[0]), stage.moved[0]]
    outcomes = stage.ask(kind, named[::-1] if swapped else named)
    assert outcomes == ([DONE, NOT_FOUND] if swapped else [NOT_FOUND, DONE])
    stage.catch_up()
    stage.finish()


def test_what_is_asked_for_at_the_instant_to_which_a_message_was_moved_is_not_it() -> None:
    stage = IdStage()
    message = stage.moved[1]
    [there] = [
        row
        for row in stage.browsed(stage.producer, stage.leader)
        if row.sequence << 16 | row.row == (message.sequence << 16 | message.row) and row.due != message.due
    ]
    stage.run_ms(6_000)
    named = [message._replace(first=there.wait_at), wrong(message, -1), message]
    assert stage.ask(RecordKind.CANCEL, named) == [NOT_FOUND, NOT_FOUND, DONE]
    stage.finish()


def strange(stage: IdStage) -> Iterator[tuple[list[Stored], list[Outcome]]]:
    """Ids of all kinds, with what must come of a CANCEL."""
    hot, cold, moved = stage.messages[0], stage.messages[40], stage.moved[2]
    yield [hot, hot], [DONE, NOT_FOUND]
    yield [cold, wrong(cold), cold], [DONE, NOT_FOUND, NOT_FOUND]
    yield [wrong(moved), wrong(moved, 2), wrong(moved)], [NOT_FOUND] * 3
    yield [moved, moved], [DONE, NOT_FOUND]
    yield [moved, wrong(moved)], [NOT_FOUND, NOT_FOUND]
    beyond = stage.messages[1]._replace(row=60_000)
    yield [beyond, stage.messages[1], beyond], [NOT_FOUND, DONE, NOT_FOUND]
    future = stage.messages[2]._replace(sequence=stage.messages[2].sequence + 1_000)
    yield [future, stage.messages[2]], [NOT_FOUND, DONE]
    none = stage.messages[3]._replace(sequence=0)
    yield [none, stage.messages[3]], [NOT_FOUND, DONE]
    far = stage.messages[4]._replace(first=(1 << 48) + stage.messages[4].first)
    yield [far, stage.messages[4]], [NOT_FOUND, DONE]


def test_ids_of_nothing_change_nothing_and_disturb_nobody() -> None:
    stage = IdStage()
    for named, outcomes in strange(stage):
        assert stage.ask(RecordKind.CANCEL, named) == outcomes
    stage.catch_up()
    stage.finish()


def test_an_id_of_a_record_that_is_yet_to_come_does_not_disturb_it() -> None:
    """A CANCEL names rows of the INSERT that follows it in the log, before anything of the two is applied."""
    stage = IdStage()
    leader = stage.leader
    stage.isolate(leader)
    end = stage.replica(leader).replica.log.end
    future = [Stored(stage.uid, end + n, row, stage.now_ms, 0, b"") for n in range(1, 5) for row in range(3)]
    asked = stage.producer.cancel(leader, future + future)
    inserted = stage.hand("other").insert(leader, [b"a", b"b", b"c"], [stage.now_ms + HOUR_MS] * 3)
    again = stage.producer.cancel(leader, future)
    stage.run_ms(100)
    stage.network.heal()
    assert set(stage.settled(stage.producer, asked).outcomes) == {NOT_FOUND}
    stage.settled(stage.producer, again)
    [message, *_] = stage.settled(stage.hand("other"), inserted).stored()
    assert stage.ask(RecordKind.CANCEL, [message, message]) == [DONE, NOT_FOUND]
    stage.catch_up()
    stage.finish()


def deliver(stage: IdStage, consumer: Hand) -> Pushed:
    """Hand one message out."""
    [message] = stage.stored(b"due", due=stage.now_ms + 50, by="other")
    return stage.delivered(consumer, message)[0]


@pytest.mark.parametrize("kind", [RecordKind.ACK, RecordKind.NACK, RecordKind.EXTEND, RecordKind.RELEASE])
def test_a_lease_is_ended_once_however_often_and_wrongly_it_is_named(kind: RecordKind) -> None:
    stage = IdStage()
    consumer = stage.hand("consumer")
    consumer.attach(stage.leader, lease_ms=30_000)
    consumer.stay()
    pushed = deliver(stage, consumer)
    cold = stage.messages[45]
    stranger = Pushed(0, "", cold.uid, cold.sequence, cold.row, cold.first, 0, pushed.token, 1, 0, b"")
    named = [replace(pushed, first=pushed.first + 1), stranger, pushed, pushed, replace(pushed, token=1)]
    amounts = [20_000] * len(named) if kind in (RecordKind.NACK, RecordKind.EXTEND) else None
    request = consumer.settle(stage.leader, kind, named, amounts_ms=amounts)
    outcomes = stage.settled(consumer, request).outcomes
    second = DONE if kind == RecordKind.EXTEND else STALE
    assert outcomes == [STALE, STALE, DONE, second, STALE]
    consumer.goodbye(stage.leader)
    stage.catch_up()
    stage.finish()

"""Care for dead messages: when a leader looks at them, and what it discards."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dueq.core.partition.dead_letters import DeadLetters
from dueq.core.ports.entry import FULL, Entries
from dueq.core.ports.persistence import IndexScanned
from dueq.core.state.applied import Applied
from dueq.core.turn.deadlines import Deadlines
from dueq.instant import Now
from dueq.limits import DEAD_LOOK_MS
from dueq_codecs.records import Record, RecordKind
from dueq_codecs.topic_settings import TopicSettings

UID = 1
HOUR_MS = 3_600_000


def at(ms: int) -> Now:
    return Now(ms * 1000, ms * 1000)


def dead(*died_at: int) -> Entries:
    rows = np.zeros(len(died_at), FULL)
    rows["sequence"], rows["died_at"] = np.arange(len(died_at)) + 7, died_at
    return rows


class Led:
    """A led partition with dead messages, whose disk answers when it is asked to."""

    def __init__(self, count: int = 1) -> None:
        self.uid, self.serving = UID, True
        self.timeline = SimpleNamespace(dead_count=count, settings=TopicSettings(dead_retention_ms=HOUR_MS))
        self.checkpoints = SimpleNamespace(after=lambda then, now: then(frozenset(), now))
        self.retention: Deadlines[int] = Deadlines()
        self.clock = SimpleNamespace(mesh_now_us=lambda now: now.mono_us, hold=False)
        self.attended = False
        self.reads: list[Callable[[object, Now], None]] = []
        self.proposed: list[Record] = []
        context: Any = self
        self.care = DeadLetters(context, context)

    def attend(self, uid: int) -> None:
        self.attended = True

    def read(self, make: object, then: Callable[[object, Now], None]) -> None:
        self.reads.append(then)

    def propose(self, record: Record, now: Now) -> int:
        self.proposed.append(record)
        return 100 + len(self.proposed)

    def turn(self, ms: int) -> None:
        """Tick, if the partition wants it by now."""
        if self.retention.take_due(ms * 1000) or self.attended:
            self.attended = False
            self.care.tick(at(ms))

    def answer(self, ms: int, entries: Entries) -> None:
        """Answer the oldest read."""
        self.reads.pop(0)(IndexScanned(0, UID, entries, exhausted=True), at(ms))

    def changed(self, ms: int, retention_ms: int) -> None:
        """The topic keeps dead messages for so long from now on."""
        self.timeline.settings = TopicSettings(dead_retention_ms=retention_ms)
        self.care.applied(
            Record(RecordKind.SETTINGS, UID, 50, 1, 0), Applied(settings=self.timeline.settings), at(ms)
        )


def test_a_new_leader_looks_at_what_died_before_it_led() -> None:
    led = Led()
    led.care.begin(at(5))
    led.turn(5)
    assert len(led.reads) == 1
    led.answer(6, dead(0))
    assert led.proposed == []
    led.turn(6)
    assert led.retention.next_us() == HOUR_MS * 1000
    led.turn(HOUR_MS)
    led.answer(HOUR_MS, dead(0, 1))
    [record] = led.proposed
    assert (record.kind, record.target_sequence.tolist()) == (RecordKind.DISCARD, [7])


def test_who_leads_again_looks_though_a_look_of_the_earlier_leadership_never_ended() -> None:
    led = Led()
    led.care.begin(at(5))
    led.turn(5)
    led.care.end()
    led.care.begin(at(50))
    led.turn(50)
    assert len(led.reads) == 2
    led.answer(60, dead(0))  # the first one's comes late and counts for nothing
    led.answer(HOUR_MS, dead(0))
    assert [record.kind for record in led.proposed] == [RecordKind.DISCARD]


def test_what_was_redriven_since_and_is_dead_again_is_kept_for_its_own_time() -> None:
    """The disk answers late. The key and the first instant of such a message are those of the one that was read."""
    led = Led()
    led.care.begin(at(5))
    led.turn(5)
    rows = dead(0, 1)
    rows["version"] = [0, 44]
    led.answer(2 * HOUR_MS, rows)
    [record] = led.proposed
    assert record.expected.tolist() == [7, 44]


def test_who_has_no_dead_messages_does_not_look() -> None:
    led = Led(0)
    led.care.begin(at(5))
    led.turn(5)
    assert led.reads == []
    assert led.retention.next_us() is None


def test_a_change_that_comes_during_a_look_takes_no_look_away() -> None:
    """Nothing else may happen in the partition for hours."""
    led = Led()
    led.care.begin(at(5))
    led.turn(5)
    led.changed(10, HOUR_MS // 2)
    led.turn(10)  # the look is not over
    led.answer(20, dead(0))
    led.turn(20)
    led.answer(21, dead(0))
    led.turn(21)
    assert led.proposed == []
    led.turn(HOUR_MS // 2)
    led.answer(HOUR_MS // 2, dead(0))
    assert len(led.proposed) == 1


@pytest.mark.parametrize("wait_ms", [2 * DEAD_LOOK_MS, HOUR_MS])
def test_it_is_looked_at_now_and_then_whatever_the_topic_says(wait_ms: int) -> None:
    led = Led(0)
    led.care.begin(at(5))
    led.timeline.dead_count = 1
    led.timeline.settings = TopicSettings(dead_retention_ms=wait_ms)
    led.care.applied(Record(RecordKind.NACK, UID, 50, 1, 0), Applied(died=1), at(5))
    assert led.retention.next_us() == (5 + min(wait_ms, DEAD_LOOK_MS)) * 1000


def test_what_dies_after_a_change_is_kept_for_no_longer_than_it_says_though_a_later_look_was_planned() -> (
    None
):
    led = Led(0)
    led.care.begin(at(5))
    led.timeline.dead_count = 1
    led.care.applied(Record(RecordKind.NACK, UID, 50, 1, 0), Applied(died=1), at(5))
    led.timeline.dead_count = 0  # it was redriven
    led.changed(10, 1_000)
    led.turn(10)
    led.timeline.dead_count = 1
    led.care.applied(Record(RecordKind.NACK, UID, 52, 1, 0), Applied(died=1), at(20))
    assert led.retention.next_us() == 1_020_000


def test_nothing_is_discarded_by_a_clock_that_is_on_hold_and_no_turn_is_taken_after_the_other() -> None:
    led = Led()
    led.care.begin(at(0))
    led.clock.hold = True
    led.turn(2 * HOUR_MS)
    led.answer(2 * HOUR_MS, dead(0))
    led.turn(2 * HOUR_MS + 1)
    assert (led.proposed, led.reads) == ([], [])
    led.clock.hold = False
    led.turn(2 * HOUR_MS + 1_000)
    led.answer(2 * HOUR_MS + 1_000, dead(0))
    [record] = led.proposed
    assert record.kind == RecordKind.DISCARD


def test_a_clock_by_which_deaths_are_to_come_is_asked_again_soon() -> None:
    """It is behind, and will be set: an hour by it is no hour."""
    led = Led()
    led.care.begin(at(5))
    led.turn(5)
    led.answer(6, dead(HOUR_MS // 2))
    led.turn(6)
    assert led.retention.next_us() == 1_006_000


def test_a_change_that_comes_while_a_discard_is_under_way_takes_no_look_away() -> None:
    led = Led(2)
    led.care.begin(at(5))
    led.turn(HOUR_MS)
    led.answer(HOUR_MS, dead(0))
    [record] = led.proposed
    led.changed(HOUR_MS + 10, HOUR_MS // 2)  # before the DISCARD is applied
    led.turn(HOUR_MS + 10)
    led.turn(HOUR_MS + 50)
    record.sequence = 101
    led.timeline.dead_count = 1
    led.care.applied(record, Applied(), at(HOUR_MS + 100))
    led.turn(HOUR_MS + 150)
    assert led.reads, "somebody looks for what else is old enough"


def test_when_a_discard_is_applied_the_next_dead_messages_are_looked_for_at_once() -> None:
    """A look brings one page: the rest of a million old messages would stay until another one died."""
    led = Led(2)
    led.care.begin(at(5))
    led.turn(5)
    led.answer(HOUR_MS, dead(0))
    [record] = led.proposed
    record.sequence = 101
    led.care.applied(record, Applied(), at(HOUR_MS + 100))
    led.turn(HOUR_MS + 100)
    assert len(led.reads) == 1
    led.answer(HOUR_MS + 101, dead(1))
    assert [record.kind for record in led.proposed] == [RecordKind.DISCARD] * 2

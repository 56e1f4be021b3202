"""Care for recurrences: when a leader fires, once for each tick, whatever becomes of its records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dueq import limits
from dueq.core.partition.recurrences import Recurrences
from dueq.core.state.applied import Applied
from dueq.core.state.body_table import BodyTable
from dueq.core.state.recurrence_table import ACTION, CREATE, PAUSE, RecurrenceTable
from dueq.core.turn.deadlines import Deadlines
from dueq.instant import Now
from dueq.recurring.terms import packed
from dueq_codecs.messages import ChangeRequest, Code
from dueq_codecs.records import NO_U8, Record, RecordKind

UID = 1
NOON = 1_800_000_000_000
EVERY_MS = 3_600_000
AHEAD_MS = limits.FIRE_AHEAD_MS


def at(ms: int) -> Now:
    """Return the instant this many ms after noon."""
    return Now((NOON + ms) * 1000, (NOON + ms) * 1000)


class Led:
    """A led partition with an hourly recurrence that waits for noon; its log commits when the test says so."""

    def __init__(self, **terms: object) -> None:
        self.uid, self.serving = UID, True
        self.recurrences = RecurrenceTable(BodyTable())
        self.timeline = SimpleNamespace(recurrences=self.recurrences)
        self.topic = SimpleNamespace(
            kind="timeline", home_partitions=1, partitions=[SimpleNamespace(uid=UID)]
        )
        self.clock = SimpleNamespace(hold=False, mesh_now_us=lambda now: now.mono_us)
        self.inserts_refused = ""
        self.wake_ups: Deadlines[int] = Deadlines()
        self.full = False
        self.end = 20
        self.proposed: list[Record] = []
        create = Record(RecordKind.RECURRENCE, UID, 7, 1, NOON - EVERY_MS)
        create.name = "r"
        create.document = packed({ACTION: CREATE, "every_ms": EVERY_MS} | terms)
        create.tick = create.following = np.array([NOON], np.uint64)
        self.recurrences.act(create, NO_U8)
        context: Any = self
        self.care = Recurrences(context, context)
        self.care.begin(at(-EVERY_MS))

    def attend(self, uid: int) -> None:
        """It is ticked by the test."""

    def propose(self, record: Record, now: Now, body: bytes = b"") -> int:
        if self.full:
            return 0
        self.end += 1
        record.sequence, record.stamp = self.end, now.wall_ms
        self.proposed.append(record)
        return self.end

    def tick(self, ms: int) -> bool:
        return self.care.tick(at(ms))

    def commit(self, ms: int) -> None:
        """The last record is applied."""
        record = self.proposed[-1]
        self.recurrences.fire(record, None)
        self.care.applied(record, Applied(), at(ms))

    def asked(self, action: str) -> Code | None:
        """Whether a client's wish is refused."""
        request = ChangeRequest(
            1, RecordKind.RECURRENCE, "t", UID, b"c" * 16, 1, 0, document=packed({ACTION: action})
        )
        request.name = "r"
        refusal = self.care.refusal(request)
        return refusal.code if refusal is not None else None

    @property
    def fired(self) -> list[tuple[int, int]]:
        """What was proposed: ticks and dues, after noon."""
        rows = [(record.tick, record.due) for record in self.proposed]
        return [(int(tick[0]) - NOON, int(due[0]) - NOON) for tick, due in rows]


@pytest.fixture
def led() -> Led:
    return Led()


def test_each_tick_is_fired_once_some_seconds_ahead(led: Led) -> None:
    led.tick(-AHEAD_MS - 1)
    assert led.fired == []
    for ms in (-AHEAD_MS, -AHEAD_MS + 50, 0, 60_000):
        led.tick(ms)
    assert led.fired == [(0, 0)], "it is on its way"
    led.commit(60_000)
    led.tick(EVERY_MS - AHEAD_MS)
    assert led.fired == [(0, 0), (EVERY_MS, EVERY_MS)]


def test_who_leads_again_fires_what_the_leadership_before_has_proposed_in_vain(led: Led) -> None:
    """Nothing will ever say that the record is not on its way any more."""
    led.tick(-AHEAD_MS)
    led.care.end()
    led.care.begin(at(-50))
    assert led.asked(PAUSE) is None
    led.care.end()
    led.care.begin(at(-50))
    led.tick(-50)
    assert led.fired == [(0, 0), (0, 0)]


def test_who_leads_no_more_is_woken_for_nothing(led: Led) -> None:
    led.tick(-AHEAD_MS - 1)
    assert led.wake_ups.next_us() is not None
    led.care.end()
    assert led.wake_ups.next_us() is None


def test_what_the_log_does_not_take_now_is_fired_soon(led: Led) -> None:
    led.full = True
    assert led.tick(-AHEAD_MS)
    led.full = False
    led.tick(-AHEAD_MS + 50)
    assert led.fired == [(0, 0)]


def test_a_wish_waits_while_a_record_about_the_recurrence_is_on_its_way(led: Led) -> None:
    """It would take back messages that are not known yet."""
    led.tick(-AHEAD_MS)
    assert led.asked(PAUSE) == Code.BUSY
    led.commit(-AHEAD_MS)
    assert led.asked(PAUSE) is None
    assert led.asked(PAUSE) == Code.BUSY, "now the wish itself is on its way"
    led.tick(EVERY_MS - AHEAD_MS)
    assert led.fired == [(0, 0)]


def test_nothing_is_fired_by_a_clock_that_is_on_hold_nor_on_a_disk_that_takes_nothing(led: Led) -> None:
    led.clock.hold = True
    led.tick(0)
    led.clock.hold = False
    led.inserts_refused = "disk_full"
    assert led.tick(0)
    assert led.fired == []
    led.inserts_refused = ""
    led.tick(1)
    assert led.fired == [(0, 0)]

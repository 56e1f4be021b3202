"""Care for recurrences: when a leader fires, once for each tick, whatever becomes of its records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dueq import limits
from dueq.core.partition.recurrences import Recurrences
from dueq.core.ports.entry import WIDE
from dueq.core.state.applied import Applied
from dueq.core.state.body_table import BodyTable
from dueq.core.state.recurrence_table import ACTION, CREATE, PAUSE, RESUME, UPDATE, RecurrenceTable
from dueq.core.turn.deadlines import Deadlines
from dueq.instant import Now
from dueq.recurring.terms import packed
from dueq_codecs.groups import home_of_group
from dueq_codecs.messages import ChangeRequest, Code
from dueq_codecs.records import NO_U8, Record, RecordKind

UID = 1
NOON = 1_800_000_000_000
EVERY_MS = 3_600_000
AHEAD_MS = limits.FIRE_AHEAD_MS


def at(ms: int) -> Now:
    """Return the instant this many ms after noon."""
    return Now((NOON + ms) * 1000, (NOON + ms) * 1000)


def wish(action: str, name: str, **terms: object) -> ChangeRequest:
    """What a client asks of a recurrence."""
    document = packed({ACTION: action} | terms)
    request = ChangeRequest(1, RecordKind.RECURRENCE, "t", UID, b"c" * 16, 1, 0, document=document)
    request.name = name
    return request


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
        self.dispatcher = SimpleNamespace(withhold=lambda uid, keys: np.zeros(len(keys), np.uint64))
        self.create(7, "r", **terms)
        context: Any = self
        self.care = Recurrences(context, context)
        self.care.begin(at(-EVERY_MS))

    def create(self, number: int, name: str, **terms: object) -> None:
        create = Record(RecordKind.RECURRENCE, UID, number, 1, NOON - EVERY_MS)
        create.name = name
        create.document = packed({ACTION: CREATE, "every_ms": EVERY_MS} | terms)
        create.tick = create.following = np.array([NOON], np.uint64)
        self.recurrences.act(create, NO_U8)

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

    def asked(self, action: str, name: str = "r", **terms: object) -> Code | None:
        """Whether a client's wish is refused."""
        refusal = self.care.refusal(wish(action, name, **terms))
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


def test_a_change_of_a_recurrence_that_is_not_here_is_taken_whatever_group_it_names(led: Led) -> None:
    """In a fair topic its name does not say where it is: each partition is asked, and most do not have it."""
    led.topic = SimpleNamespace(
        kind="fair", home_partitions=2, partitions=[SimpleNamespace(uid=UID), SimpleNamespace(uid=UID + 1)]
    )
    elsewhere = next(name for name in ("a", "b", "c", "d", "e", "f") if home_of_group(name, 2) == 1)
    assert led.asked(UPDATE, "r", group=elsewhere) == Code.INVALID_REQUEST
    assert led.asked(UPDATE, "unknown", group=elsewhere) is None


def test_a_partition_takes_recurrences_until_their_bytes_are_as_many_as_they_may_be(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len("new") + len(packed({"every_ms": EVERY_MS}))
    monkeypatch.setattr(limits, "RECURRENCES_BYTES_MAX", led.recurrences.bytes + size - 1)
    assert led.asked(CREATE, "new", every_ms=EVERY_MS) == Code.TOO_MANY_RECURRENCES
    monkeypatch.setattr(limits, "RECURRENCES_BYTES_MAX", led.recurrences.bytes + size)
    assert led.asked(CREATE, "new", every_ms=EVERY_MS) is None


@pytest.mark.parametrize(
    ("late_ms", "due"), [(limits.MISSED_AFTER_MS - 1, 0), (limits.MISSED_AFTER_MS, -NOON)]
)
def test_a_tick_is_missed_when_it_is_a_minute_late_and_not_before(late_ms: int, due: int) -> None:
    """After a change of leaders a recurrence that makes up for nothing would leave ticks out."""
    led = Led(missed=0)
    led.tick(late_ms)
    assert led.fired == [(0, due)]


def test_a_recurrence_that_makes_up_for_nothing_fires_though_its_ticks_are_close_together() -> None:
    led = Led(every_ms=10_000, missed=0)
    led.tick(-AHEAD_MS)
    led.commit(-AHEAD_MS)
    led.tick(10_000 - AHEAD_MS)
    assert led.fired == [(0, 0), (10_000, 10_000)]


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


def test_the_partition_is_woken_when_the_next_one_is_to_be_looked_at(led: Led) -> None:
    led.tick(-AHEAD_MS - 500)
    assert led.wake_ups.next_us() == (NOON - AHEAD_MS) * 1000
    led.tick(-EVERY_MS)
    look_again_us = led.wake_ups.next_us()
    assert look_again_us is not None
    assert look_again_us < (NOON - AHEAD_MS) * 1000, "mesh time may be set meanwhile"


def test_a_tick_that_has_a_message_is_skipped_where_it_is_waited_for_again(led: Led) -> None:
    """A pause could not take the message back. Replicas refuse a second one: it would be proposed for ever."""
    led.tick(-AHEAD_MS)
    led.commit(-AHEAD_MS)
    led.recurrences.by_number[7].next = NOON
    led.care.begin(at(-50))
    led.tick(-50)
    assert led.fired == [(0, 0), (0, -NOON)]
    led.commit(-50)
    assert led.recurrences.by_number[7].next == NOON + EVERY_MS


def test_one_that_waits_for_the_end_of_its_last_message_fires_ahead_once_that_has_ended() -> None:
    led = Led(overlap="skip")
    recurrence = led.recurrences.by_number[7]
    recurrence.unfinished = 1
    led.tick(-AHEAD_MS)
    assert led.fired == []
    recurrence.unfinished = 0
    ended = np.zeros(1, WIDE)
    ended["recurrence"] = 7
    led.care.applied(Record(RecordKind.ACK, UID, 21, 1, NOON), Applied(ended=ended), at(-AHEAD_MS + 1_000))
    led.tick(-AHEAD_MS + 1_000)
    assert led.fired == [(0, 0)]


def test_one_that_is_paused_waits_for_no_tick_whatever_is_changed_until_it_is_resumed(led: Led) -> None:
    led.recurrences.by_number[7].paused = True
    for action, waits in ((UPDATE, False), (PAUSE, False), (RESUME, True)):
        record = Record(RecordKind.RECURRENCE, UID, 30, 1, NOON)
        led.care.fill(
            record, wish(action, "r", **({"every_ms": EVERY_MS} if action == UPDATE else {})), at(0)
        )
        assert bool(record.following[0]) is waits, action


def test_what_fires_together_makes_no_record_that_is_larger_than_a_request(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    led.create(8, "s")
    led.care.begin(at(-AHEAD_MS))
    monkeypatch.setattr(limits, "REQUEST_BYTES_MAX", led.recurrences.bytes - 1)
    assert led.tick(-AHEAD_MS), "the other one follows at once"
    led.tick(-AHEAD_MS + 1)
    assert [record.recurrence.tolist() for record in led.proposed] == [[7], [8]]


def test_what_needs_no_more_room_is_taken_by_a_partition_that_has_none(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RECURRENCES_BYTES_MAX", 1)
    assert led.asked(PAUSE) is None

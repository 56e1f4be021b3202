"""Updates of a recurrence leave no tick out, whatever of the messages that were fired ahead can be taken back."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from dueq import limits
from dueq.core.front import recurrence_documents
from dueq.core.partition.partition import Partition
from dueq.core.state.applied import Applied
from dueq.core.state.recurrence_table import UPDATE
from dueq.recurring.terms import Terms
from dueq.recurring.ticks import due_of
from dueq_codecs.records import Outcome, Record, RecordKind
from tests.unit.core.partition.test_recurrences import AHEAD_MS, EVERY_MS, NOON, UID, Led, at, wish


class Updated(Led):
    """Its recurrence is updated; some of its messages a consumer has, or a user has cancelled (`kept`: their ticks)."""

    def __init__(self, **terms: object) -> None:
        super().__init__(**terms)
        self.kept: set[int] = set()
        self.brought: list[int] = []

    @property
    def waits_for(self) -> int:
        return self.recurrences.by_number[7].next - NOON

    def update(self, ms: int, **terms: object) -> None:
        request = wish(UPDATE, "r", **terms)
        assert self.care.refusal(request) is None
        self.end += 1
        record = Record(RecordKind.RECURRENCE, UID, self.end, 1, at(ms).wall_ms)
        self.care.fill(record, request, at(ms))
        ticks = {(each.sequence, each.row): each.tick - NOON for each in self.recurrences.by_number[7].fired}
        named = list(zip(record.target_sequence.tolist(), record.target_row.tolist(), strict=True))
        found = [Outcome.NOT_FOUND if ticks[place] in self.kept else Outcome.DONE for place in named]
        taken_back = {ticks[place] for place in named} - self.kept
        self.brought = [tick for tick in self.brought if tick not in taken_back]
        self.recurrences.act(record, np.array(found, np.uint8))
        self.care.applied(record, Applied(), at(ms))

    def go(self, from_ms: int, until_ms: int, step_ms: int = 50) -> None:
        """Let time pass; what is proposed is committed at once."""
        for ms in range(from_ms, until_ms, step_ms):
            before = len(self.proposed)
            self.tick(ms)
            if len(self.proposed) > before:
                record = self.proposed[-1]
                _, new = self.recurrences.fire(record, None)
                self.care.applied(record, Applied(), at(ms))
                self.brought += [int(record.tick[row]) - NOON for row in new.tolist()]

    def shown(self, ms: int) -> dict[str, Any]:
        """Return what users see of it."""
        contents = type("Contents", (), {"recurrence": lambda _, name: self.recurrences.get(name)})()
        partition = type("Shown", (), {"uid": UID, "epoch": 1, "applied": self.end, "contents": contents})()
        document = recurrence_documents.one([cast(Partition, partition)], "r", NOON + ms)
        shown: dict[str, Any] = document["partitions"][0]["recurrences"][0]
        return shown


def test_two_updates_at_once_leave_no_tick_out_though_a_message_stays_between_the_others() -> None:
    """The first one takes the others back. The second one finds only the one that stays."""
    led = Updated(every_ms=1_000)
    led.go(-AHEAD_MS, -2_500)
    assert led.brought == list(range(0, 8_000, 1_000))
    led.kept = {5_000}
    led.update(-2_400, rank=1)
    led.update(-2_390, rank=2)
    assert (led.waits_for, led.shown(-2_390)["next"] - NOON) == (0, 0)
    led.go(-2_350, 10_000)
    assert sorted(led.brought) == list(range(0, 20_000, 1_000))


@pytest.mark.parametrize("missed", [0, 1])
def test_an_update_loses_no_tick_whose_message_is_still_to_come_though_the_tick_is_long_ago(
    missed: int,
) -> None:
    jitter_ms = EVERY_MS - 1
    due_ms = due_of(Terms(every_ms=EVERY_MS, jitter_ms=jitter_ms), "r", NOON) - NOON
    assert due_ms > 10 * limits.MISSED_AFTER_MS
    led = Updated(jitter_ms=jitter_ms, missed=missed)
    led.go(-AHEAD_MS, 0, 1_000)
    led.update(due_ms - 5_000, rank=1)
    assert led.brought == []
    led.go(due_ms - 5_000, due_ms)
    assert led.brought == [0]


def test_a_tick_that_nobody_has_fired_is_missed_a_minute_after_its_message_should_have_come() -> None:
    jitter_ms = EVERY_MS - 1
    due_ms = due_of(Terms(every_ms=EVERY_MS, jitter_ms=jitter_ms), "r", NOON) - NOON
    for late_ms, brought in ((limits.MISSED_AFTER_MS - 1, [0]), (limits.MISSED_AFTER_MS, [])):
        led = Updated(jitter_ms=jitter_ms, missed=0)
        led.go(due_ms + late_ms, due_ms + late_ms + 1)
        assert led.brought == brought


DAY_MS = 24 * EVERY_MS
SECOND_TICK, THIRD_TICK = 2_000, EVERY_MS


def jittered() -> tuple[Updated, int]:
    """Of ticks 0, 2,000 and an hour, the first is due hours after the second: their jitter changes their order.

    Days between earlier ticks let such a jitter pass. Returns the due of the second, too.
    """
    instants = [NOON - day * DAY_MS for day in range(70, 0, -1)] + [
        NOON,
        NOON + SECOND_TICK,
        NOON + THIRD_TICK,
    ]
    for jitter_ms in range(DAY_MS - 1, 0, -1):
        terms = Terms(at_ms=tuple(instants), jitter_ms=jitter_ms)
        first_ms = due_of(terms, "r", NOON) - NOON
        second_ms = due_of(terms, "r", NOON + SECOND_TICK) - NOON
        if first_ms > 2 * EVERY_MS and EVERY_MS // 4 < second_ms < EVERY_MS // 2:
            break
    led = Updated(every_ms=0, at_ms=instants, jitter_ms=jitter_ms, missed=100)
    led.go(-AHEAD_MS, SECOND_TICK, 1_000)
    assert led.brought == [0, SECOND_TICK]
    return led, second_ms


def test_an_update_begins_at_the_first_tick_though_its_message_is_due_after_those_of_others() -> None:
    led, _ = jittered()
    led.update(5_000, rank=1)
    assert (led.brought, led.waits_for, led.shown(5_000)["next"] - NOON) == ([], 0, 0)
    led.go(5_000, 6_000)
    assert (led.brought, led.shown(6_000)["next"] - NOON) == ([0, SECOND_TICK], 0)


def test_an_update_brings_a_tick_again_though_the_message_of_a_later_one_has_come() -> None:
    led, second_ms = jittered()
    led.update(second_ms, rank=1)
    assert (led.brought, led.waits_for) == ([SECOND_TICK], 0)
    led.go(second_ms, second_ms + 1_000)
    assert led.brought == [SECOND_TICK, 0]
    assert led.waits_for == THIRD_TICK


def test_an_update_brings_a_tick_again_though_another_has_fired_since_a_later_one_has_come() -> None:
    led, _ = jittered()
    led.go(THIRD_TICK - AHEAD_MS, THIRD_TICK, 1_000)
    assert led.brought == [0, SECOND_TICK, THIRD_TICK]
    led.kept = {THIRD_TICK}
    led.update(THIRD_TICK, rank=1)
    assert (led.brought, led.waits_for) == ([SECOND_TICK, THIRD_TICK], 0)
    led.go(THIRD_TICK, THIRD_TICK + 1_000)
    assert led.brought == [SECOND_TICK, THIRD_TICK, 0]

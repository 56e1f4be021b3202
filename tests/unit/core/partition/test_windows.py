"""The leader's choice of an instant inside a window: level, beside what waits already, and the same every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from dueq.core.partition.windows import ALIKE_MAX, KEPT_MS, PLANS_MAX, Windows
from dueq_codecs.records import U32

NINE_MS = 1_767_258_000_000
HOUR_MS = 3_600_000
TEN_MINUTES_MS = 600_000
EARLY_MS = NINE_MS - 20 * HOUR_MS


class Waiting:
    """The waiting messages, given by hand."""

    def __init__(self) -> None:
        self.seconds: Counter[int] = Counter()
        self.hours: Counter[int] = Counter()
        self.asked = 0

    def forecast(self, from_ms: int, seconds: int) -> list[tuple[int, int]]:
        self.asked += 1
        inside = range(from_ms // 1000, from_ms // 1000 + seconds)
        return sorted((at * 1000, count) for at, count in self.seconds.items() if at in inside)

    def waiting_by_hour(self) -> Mapping[int, int]:
        return self.hours


def choose(
    windows: Windows, rows: int, seed: int, now_ms: int = EARLY_MS, width: int = TEN_MINUTES_MS
) -> list[int]:
    chosen: U32 = windows.choose(
        np.full(rows, NINE_MS, np.uint64), np.full(rows, width, np.uint32), now_ms, seed
    )
    assert int(chosen.max()) <= width
    return [(NINE_MS + each) // 1000 for each in chosen.tolist()]


def test_a_hundred_thousand_for_nine_come_out_level() -> None:
    for requests, rows in ((98, 1024), (10_000, 1)):
        windows, seconds = Windows(Waiting()), Counter[int]()
        for seed in range(requests):
            seconds.update(choose(windows, rows, seed))
        assert len(seconds) == 600
        assert max(seconds.values()) <= 1.1 * requests * rows / 600 + 1


def test_they_come_out_level_also_beside_what_waits_there_already() -> None:
    waiting = Waiting()
    for second in range(60):
        waiting.seconds[NINE_MS // 1000 + second] = 150
    windows, seconds = Windows(waiting), Counter(waiting.seconds)
    for seed in range(90):
        seconds.update(choose(windows, 1000, seed, now_ms=EARLY_MS + seed * 500))
        if seed % 21 == 20:
            waiting.seconds = Counter(seconds)  # they have been applied, and are counted anew
    assert max(seconds.values()) <= 1.1 * 99_000 / 600
    assert max(seconds.values()) >= 99_000 / 600


def test_a_second_that_is_too_full_already_gets_nothing() -> None:
    waiting = Waiting()
    waiting.seconds[NINE_MS // 1000 + 7] = 10_000
    chosen = Counter(choose(Windows(waiting), 600, 1))
    assert chosen[NINE_MS // 1000 + 7] == 0
    assert max(chosen.values()) <= 2


def test_single_messages_of_many_partitions_do_not_all_take_the_first_second() -> None:
    chosen = Counter(choose(Windows(Waiting()), 1, seed * 7919)[0] for seed in range(600))
    assert max(chosen.values()) < 12


def test_no_instant_that_has_passed_is_chosen() -> None:
    now_ms = NINE_MS + 300_000
    assert min(choose(Windows(Waiting()), 1000, 1, now_ms)) >= now_ms // 1000
    assert set(choose(Windows(Waiting()), 9, 1, NINE_MS + HOUR_MS)) == {(NINE_MS + TEN_MINUTES_MS) // 1000}


def test_a_window_of_days_goes_by_the_hours() -> None:
    waiting = Waiting()
    for hour in range(24):
        waiting.hours[NINE_MS // HOUR_MS + hour] = 100_000 if hour < 12 else 0
    chosen = choose(Windows(waiting), 1000, 3, width=24 * HOUR_MS)
    assert {(second * 1000 - NINE_MS) // HOUR_MS for second in chosen} <= set(range(12, 24))
    assert waiting.asked == 0


def test_windows_that_differ_from_row_to_row_are_left_to_chance() -> None:
    waiting = Waiting()
    due = NINE_MS + np.arange(1000, dtype=np.uint64)
    width = np.full(1000, 60_000, np.uint32)
    chosen = Windows(waiting).choose(due, width, EARLY_MS, 5)
    assert waiting.asked == 0
    assert len(due) > ALIKE_MAX
    assert (chosen <= width).all()
    assert max(Counter((chosen // 10_000).tolist()).values()) < 250


def test_rows_without_a_window_are_due_when_they_say() -> None:
    due, width = np.full(3, NINE_MS, np.uint64), np.array([0, 5000, 0], np.uint32)
    chosen = Windows(Waiting()).choose(due, width, EARLY_MS, 5)
    assert chosen[[0, 2]].tolist() == [0, 0]


def test_the_same_request_in_the_same_state_is_answered_alike() -> None:
    first, again = choose(Windows(Waiting()), 50, 9), choose(Windows(Waiting()), 50, 9)
    assert first == again != choose(Windows(Waiting()), 50, 10)


def test_counts_are_kept_for_a_while_and_few_of_them() -> None:
    waiting = Waiting()
    windows = Windows(waiting)
    for _ in range(5):
        choose(windows, 1, 1)
    assert waiting.asked == 1
    choose(windows, 1, 1, EARLY_MS + KEPT_MS)
    assert waiting.asked == 2
    for width in range(1000, 1000 * (PLANS_MAX + 2), 1000):
        choose(windows, 1, 1, EARLY_MS + KEPT_MS, width)
    choose(windows, 1, 1, EARLY_MS + KEPT_MS)
    assert waiting.asked == 2 + PLANS_MAX + 1 + 1

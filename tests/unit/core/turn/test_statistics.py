"""Statistics by hour and topic: counted per batch, bounded, and the same after a restart."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pytest

from dueq import limits
from dueq.core.ports.entry import ENTRY, Entries
from dueq.core.turn.statistics import (
    ANSWER_ROWS,
    BOUNDS_US,
    HOUR_MS,
    OTHER_SENDERS,
    OTHER_TOPICS,
    Statistics,
)

NOW_MS = 500_000 * HOUR_MS
CLIENT = b"c" * 16


def entries(*rows: tuple[int, int]) -> Entries:
    """(wait_at, attempt) each."""
    found = np.zeros(len(rows), ENTRY)
    for at, (wait_at, attempt) in enumerate(rows):
        found[at]["wait_at"], found[at]["attempt"] = wait_at, attempt
    return found


def rows(statistics: Statistics, from_hour: int = 0, topic: str = "") -> list[dict[str, Any]]:
    """All rows, answer by answer."""
    found: list[dict[str, Any]] = []
    while True:
        document = json.loads(json.dumps(statistics.document(from_hour, topic)))
        found += document["rows"]
        if not document["next"]:
            return found
        from_hour = document["next"]


@pytest.mark.parametrize("seed", range(3))
def test_pushes_are_counted_as_a_naive_count_does(seed: int) -> None:
    random, statistics = Random(seed), Statistics()
    late_us: list[int] = []
    delivered = again = 0
    for _ in range(40):
        mesh_us = (NOW_MS + random.randrange(HOUR_MS)) * 1000 + random.randrange(1000)
        batch = [
            (mesh_us // 1000 - random.choice((0, 1, 7, 500, 10**7)), random.choice((1, 1, 1, 2, 9)))
            for _ in range(random.choice((1, 1, 2, 30)))
        ]
        statistics.pushed("t", entries(*batch), mesh_us)
        delivered += len(batch)
        again += sum(attempt > 1 for _, attempt in batch)
        late_us += [mesh_us - wait_at * 1000 for wait_at, attempt in batch if attempt == 1]
    counts = [0] * (len(BOUNDS_US) + 1)
    for late in late_us:
        counts[next((at for at, bound in enumerate(BOUNDS_US) if late <= bound), len(BOUNDS_US))] += 1
    (row,) = rows(statistics)
    assert (row["topic"], row["hour"]) == ("t", NOW_MS)
    assert (row["delivered"], row["redelivered"], row["lateness"]) == (delivered, again, counts)


def test_rows_that_became_ready_in_one_millisecond_are_counted_as_one_by_one() -> None:
    together, singly = Statistics(), Statistics()
    for late_ms, attempts in ((0, (1, 1, 1)), (7, (1, 2, 9)), (500, (2, 2))):
        mesh_us, wait_ms = (NOW_MS + late_ms) * 1000, NOW_MS
        together.pushed_together("t", wait_ms, len(attempts), attempts.count(1), mesh_us)
        singly.pushed("t", entries(*((wait_ms, attempt) for attempt in attempts)), mesh_us)
    assert rows(together) == rows(singly)


def test_hours_and_topics_are_counted_apart() -> None:
    statistics = Statistics()
    statistics.scheduled("b", CLIENT, 3, NOW_MS)
    statistics.scheduled("a", CLIENT, 4, NOW_MS + HOUR_MS - 1)
    statistics.scheduled("b", CLIENT, 5, NOW_MS + HOUR_MS)
    statistics.scheduled("b", b"d" * 16, 1, NOW_MS + HOUR_MS)
    found = [(row["hour"], row["topic"], row["senders"]) for row in rows(statistics)]
    first, second = CLIENT.hex(), (b"d" * 16).hex()
    assert found == [
        (NOW_MS, "a", {first: 4}), (NOW_MS, "b", {first: 3}), (NOW_MS + HOUR_MS, "b", {first: 5, second: 1}),
    ]  # fmt: skip
    assert [row["topic"] for row in rows(statistics, topic="a")] == ["a"]
    assert len(rows(statistics, NOW_MS // HOUR_MS + 1)) == 1


def test_a_late_record_is_counted_in_its_own_hour() -> None:
    statistics = Statistics()
    statistics.scheduled("t", CLIENT, 1, NOW_MS + HOUR_MS)
    statistics.scheduled("t", CLIENT, 2, NOW_MS)
    statistics.scheduled("t", CLIENT, 4, NOW_MS + HOUR_MS)
    assert [row["senders"][CLIENT.hex()] for row in rows(statistics)] == [2, 5]


def test_a_week_is_kept() -> None:
    statistics = Statistics()
    for hour in range(limits.STATISTICS_HOURS + 5):
        statistics.scheduled("t", CLIENT, 1, NOW_MS + hour * HOUR_MS)
    found = rows(statistics)
    assert len(found) == limits.STATISTICS_HOURS
    assert found[0]["hour"] == NOW_MS + 5 * HOUR_MS


def test_a_week_is_kept_also_after_the_clock_was_set_back() -> None:
    """Nothing was forgotten before that wrong hour came again: the file grew over all restarts until then."""
    before, statistics = Statistics(), Statistics()
    before.scheduled("t", CLIENT, 1, NOW_MS + 9_000 * HOUR_MS)
    for (hour, topic), counts in before.items():
        statistics.restore(hour, topic, counts.document())
    for hour in range(limits.STATISTICS_HOURS + 5):
        statistics.scheduled("t", CLIENT, 1, NOW_MS + hour * HOUR_MS)
    assert len(rows(statistics)) == limits.STATISTICS_HOURS + 1


def test_the_greatest_senders_are_named_and_nothing_is_left_out_of_the_sum() -> None:
    statistics = Statistics()
    for number in range(2 * limits.STATISTICS_SENDERS_KEPT):
        statistics.scheduled("t", number.to_bytes(16, "big"), 1 + 1000 * (number < 3), NOW_MS)
    (row,) = rows(statistics)
    assert len(row["senders"]) == limits.STATISTICS_SENDERS_SHOWN + 1
    assert sum(row["senders"].values()) == 2 * limits.STATISTICS_SENDERS_KEPT + 3000
    assert [row["senders"][number.to_bytes(16, "big").hex()] for number in range(3)] == [1001] * 3
    assert (
        row["senders"][OTHER_SENDERS] == 2 * limits.STATISTICS_SENDERS_KEPT - limits.STATISTICS_SENDERS_SHOWN
    )


def test_too_many_topics_of_one_hour_are_counted_together() -> None:
    statistics = Statistics()
    for number in range(limits.STATISTICS_TOPICS_MAX + 7):
        statistics.scheduled(f"t{number}", CLIENT, 1, NOW_MS)
    statistics.scheduled("t3", CLIENT, 1, NOW_MS)
    found = {row["topic"]: row["senders"][CLIENT.hex()] for row in rows(statistics)}
    assert len(found) == limits.STATISTICS_TOPICS_MAX + 1
    assert (found[OTHER_TOPICS], found["t3"]) == (7, 2)


def test_a_topic_with_a_row_of_its_own_keeps_it_though_the_hour_is_full() -> None:
    """A late record, after others of the next hour, belongs to it too."""
    statistics = Statistics()
    for number in range(limits.STATISTICS_TOPICS_MAX):
        statistics.scheduled(f"t{number}", CLIENT, 1, NOW_MS)
    statistics.scheduled("t3", CLIENT, 1, NOW_MS + HOUR_MS)
    statistics.scheduled("t3", CLIENT, 1, NOW_MS)
    found = [(row["hour"], row["senders"]) for row in rows(statistics, topic="t3")]
    assert found == [(NOW_MS, {CLIENT.hex(): 2}), (NOW_MS + HOUR_MS, {CLIENT.hex(): 1})]
    assert rows(statistics, topic=OTHER_TOPICS) == []


def test_an_answer_is_bounded_and_never_cuts_an_hour() -> None:
    statistics = Statistics()
    for hour in range(30):
        for topic in ("a", "b", "c"):
            statistics.scheduled(topic, CLIENT, 1, NOW_MS + hour * HOUR_MS)
    document = statistics.document(0)
    assert ANSWER_ROWS <= len(document["rows"]) < ANSWER_ROWS + 3
    assert document["rows"][-1]["topic"] == "c"
    found = [(row["hour"], row["topic"]) for row in rows(statistics)]
    assert len(found) == len(set(found)) == 90
    assert found == sorted(found)


def test_what_is_restored_goes_on_where_it_was() -> None:
    before, after = Statistics(), Statistics()
    before.pushed("t", entries((NOW_MS, 1), (NOW_MS, 2)), NOW_MS * 1000 + 700)
    for number in range(limits.STATISTICS_SENDERS_KEPT + 1):
        before.scheduled("t", number.to_bytes(16, "big"), 2, NOW_MS)
    for (hour, topic), counts in before.items():
        after.restore(hour, topic, json.loads(json.dumps(counts.document())))
    assert rows(after) == rows(before)
    after.pushed("t", entries((NOW_MS, 1)), NOW_MS * 1000 + 700)
    assert rows(after)[0]["delivered"] == 3


def test_whatever_is_counted_is_seen_to_have_changed() -> None:
    """By that it is written to the disk: what is not would be lost with the next restart."""
    statistics = Statistics()
    marks = []
    for _ in range(2):
        statistics.scheduled("t", CLIENT, 1, NOW_MS)
        marks.append(statistics.items()[0][1].changes)
        statistics.pushed("t", entries((NOW_MS, 1)), NOW_MS * 1000)
        marks.append(statistics.items()[0][1].changes)
        statistics.pushed_together("t", NOW_MS, 2, 1, NOW_MS * 1000)
        marks.append(statistics.items()[0][1].changes)
    assert marks == sorted(set(marks))


@pytest.mark.parametrize(
    "change", [{"lateness": [1]}, {"senders": 5}, {"delivered": "x"}, {"lateness": None}]
)
def test_what_is_no_row_is_not_restored(change: dict[str, Any]) -> None:
    statistics = Statistics()
    statistics.scheduled("t", CLIENT, 1, NOW_MS)
    document = {**rows(statistics)[0], **change}
    with pytest.raises((ValueError, TypeError, KeyError)):
        Statistics().restore(1, "t", document)

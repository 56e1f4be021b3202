"""Notes of recurrences and of keyed messages: each verdict has a history that deserves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dueq_chaos.nemesis.noted import Noted, judge_keys, judge_ticks, read_notes

Note = dict[str, Any]
MADE: list[Note] = [
    {"making": "r", "from": 10_000}, {"made": "r", "since": 10_000}, {"ended": "r", "until": 13_000},
]  # fmt: skip


def tick(due: int, message: str = "", at: int = 0) -> Note:
    return {"tick": "r", "due": due, "id": message or f"m{due}", "at": at or due + 3}


def came(
    key: str, message: str = "m1", due: int = 10_000, left: int = 10_000_500, at: int = 10_001_000
) -> Note:
    return {"came": key, "id": message, "due": due, "left": left, "at": at}


SCHEDULED: list[Note] = [{"asked": ["k"]}, {"scheduled": ["k"], "ids": ["m1"]}]


def wrong(noted: Noted) -> list[str]:
    return [what for what, found in noted.findings.items() if found]


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ([tick(10_000), tick(11_000), tick(12_000)], []),
        ([tick(10_000), tick(11_000), tick(11_000), tick(12_000), tick(13_000)], []),
        ([tick(10_000), tick(12_000)], ["tick missed"]),
        ([tick(10_000), tick(11_000), tick(11_000, "other"), tick(12_000)], ["tick twice"]),
        ([tick(10_000), tick(11_000, at=10_900), tick(12_000)], ["tick early"]),
        ([tick(10_000), tick(11_000), tick(12_000), tick(11_500)], ["tick of nothing"]),
        ([tick(9_000), tick(10_000), tick(11_000), tick(12_000)], ["tick of nothing"]),
    ],
    ids=["good", "again, and beyond the end", "missed", "twice", "early", "between", "before"],
)
def test_every_tick_has_one_message_at_its_instant(notes: list[Note], expected: list[str]) -> None:
    noted = judge_ticks([*MADE, *notes])
    assert wrong(noted) == expected
    assert noted.counts["ticks expected"] == 3


def test_a_recurrence_that_came_late_owes_no_tick_of_before() -> None:
    late = [{"making": "r", "from": 10_000}, {"made": "r", "since": 11_400}, {"ended": "r", "until": 13_000}]
    assert wrong(judge_ticks([*late, tick(11_000), tick(12_000)])) == []
    assert wrong(judge_ticks([*late, tick(11_000)])) == ["tick missed"]


def test_a_recurrence_of_which_nobody_knows_owes_no_tick() -> None:
    unknown = [{"making": "r", "from": 10_000}, {"ended": "r", "until": 13_000}]
    assert wrong(judge_ticks([*unknown, tick(11_000)])) == []


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ([*SCHEDULED, came("k")], []),
        ([*SCHEDULED, came("k"), came("k")], []),
        ([{"asked": ["k"]}], []),
        ([{"asked": ["k"]}, came("k", "any")], []),
        ([*SCHEDULED, {"cancelling": "k"}], []),
        ([*SCHEDULED, {"cancelling": "k"}, {"cancelled": "k", "at": 9_000_000}], []),
        (SCHEDULED, ["keyed message lost"]),
        ([*SCHEDULED, came("k", "m2")], ["key twice"]),
        ([{"asked": ["k"]}, came("k", "m1"), came("k", "m2")], ["key twice"]),
        ([*SCHEDULED, came("k", at=9_900_000)], ["keyed message early"]),
        (
            [*SCHEDULED, {"cancelling": "k"}, {"cancelled": "k", "at": 9_000_000}, came("k")],
            ["keyed message after its cancel"],
        ),
        ([came("k")], ["keyed message of nothing"]),
    ],
    ids=[
        "good", "again", "nobody knows", "nobody knew", "perhaps cancelled", "cancelled", "lost", "other id",
        "two ids", "early", "after its cancel", "of nothing",
    ],
)  # fmt: skip
def test_every_key_has_one_message_that_comes(notes: list[Note], expected: list[str]) -> None:
    assert wrong(judge_keys(notes)) == expected


def test_a_cancel_is_judged_more_mildly_where_clocks_were_set() -> None:
    notes = [*SCHEDULED, {"cancelling": "k"}, {"cancelled": "k", "at": 9_000_000}, came("k")]
    assert not wrong(judge_keys(notes, clocks_off_us=2_000_000))


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text('{"asked": ["k"]}\n{"sched', encoding="utf-8")
    assert list(read_notes(path)) == [{"asked": ["k"]}]

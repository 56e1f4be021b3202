"""Care for passes: what a leader goes on with, begins anew or waits for, and what it writes of each message."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dueq.core.ports.entry import FULL, Entries, State
from dueq.core.state.applied import Applied
from dueq.core.state.pass_table import Pass, PassState
from dueq.instant import Now
from dueq.limits import DUE_MS_MAX, PASS_ROWS_MAX
from dueq_codecs.records import Record, RecordKind
from tests.unit.core.partition.test_passes import UID, Led, Then, Walk, at

DEAD = {"state": "dead"}


def page_of(count: int, **columns: int) -> Entries:
    page = np.zeros(count, FULL)
    page["state"], page["row"] = State.WAITING, np.arange(count)
    for name, value in columns.items():
        page[name] = value
    return page


def page(led: Led, entries: Entries) -> None:
    """The page that is on its way comes."""
    led.pages.pop(0)(entries, at(3))


def applied(led: Led, kind: RecordKind = RecordKind.CANCEL, sequence: int = 100) -> None:
    led.timeline.applied = sequence
    led.care.applied(Record(kind, UID, sequence, 1, 0), Applied(), at(4))


def skipped(led: Led) -> dict[str, int]:
    """What the pass tells at its end, in the last record."""
    document = json.loads(led.proposed[-1].document)
    assert document["do"] == "end"
    found: dict[str, int] = document["skipped"]
    return found


def changed(led: Led) -> Record:
    """The one record that was written."""
    [record] = led.proposed
    return record


# ---------------------------------------------------------------- leaderships


def test_a_page_that_comes_after_the_end_of_the_leadership_is_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    led = Led(monkeypatch)
    led.care.tick(at(2))
    led.care.end()
    page(led, page_of(1))
    assert led.proposed == []


def test_a_leader_begins_the_running_pass_anew_and_takes_no_page_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    led = Led(monkeypatch)
    led.care.tick(at(2))
    led.care.begin(at(2))
    led.care.tick(at(2))
    assert led.ways == 2
    page(led, page_of(1))
    assert led.proposed == []
    page(led, page_of(1))
    assert len(led.proposed) == 1


def test_a_checkpoint_that_is_saved_after_the_end_of_the_leadership_begins_no_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    led = Led(monkeypatch)
    saved: list[Callable[[frozenset[int], Now], None]] = []
    led.checkpoints.after = lambda then, now: saved.append(then)
    led.care.tick(at(2))
    led.care.end()
    saved.pop()(frozenset(), at(3))
    assert led.ways == 0


def test_who_does_not_serve_goes_through_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(monkeypatch)
    led.serving = False
    assert not led.care.tick(at(2))
    assert led.ways == 0


def test_a_pass_that_was_put_before_the_present_one_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The present one is over. What was read for it is not what the next one is about."""
    led = Led(monkeypatch)
    led.care.tick(at(2))
    led.timeline.passes.running = Pass("q", 6, {"do": "cancel", "filter": {"state": "waiting"}}, 3)
    assert led.care.tick(at(2))
    assert led.ways == 2
    page(led, page_of(1))
    assert led.proposed == []
    page(led, page_of(1))
    assert changed(led).name == "q"


def test_a_pass_that_is_stopped_changes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(monkeypatch)
    led.care.tick(at(2))
    led.timeline.passes.running.state = next(each for each in PassState if each != PassState.RUNNING)
    page(led, page_of(1))
    assert led.proposed == []


def test_only_of_the_pass_that_is_worked_on_it_is_known_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Walk, "read", lambda walk, then: setattr(walk, "looked", 7))
    led = Led(monkeypatch)
    led.care.tick(at(2))
    other = Pass("q", 6, {}, 3)
    assert [led.care.looked(run) for run in (led.timeline.passes.running, other)] == [7, 0]


# ---------------------------------------------------------------- one thing at a time


def test_nothing_is_read_twice_while_a_page_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(monkeypatch)
    for ms in (2, 3, 4):
        assert led.care.tick(at(ms))
    assert (led.ways, led.proposed) == (1, [])


def test_one_record_is_under_way_at_a_time_and_the_next_one_follows_when_it_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Consumers are served in between."""
    led = Led(monkeypatch)
    led.care.tick(at(2))
    page(led, page_of(PASS_ROWS_MAX + 1))
    led.care.tick(at(3))
    assert [record.rows for record in led.proposed] == [PASS_ROWS_MAX]
    applied(led)
    assert [record.rows for record in led.proposed] == [PASS_ROWS_MAX, 1]


def test_what_the_log_does_not_take_now_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(monkeypatch)
    led.care.tick(at(2))
    monkeypatch.setattr(led, "propose", lambda record, now: 0)
    page(led, page_of(2))
    monkeypatch.undo()
    led.care.tick(at(3))
    assert changed(led).target_row.tolist() == [0, 1]


# ---------------------------------------------------------------- what is skipped


def test_leased_messages_are_counted_once_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(monkeypatch)
    led.timeline.leased = lambda: page_of(2)
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(
        Walk, "choose", lambda walk, entries, then, now: later.append(lambda: then(entries, now))
    )
    led.look()
    led.care.tick(at(3))
    assert (len(later), led.proposed) == (1, [])
    later.pop()()
    assert skipped(led) == {"leased": 2}


def test_a_count_that_ends_after_the_leadership_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(monkeypatch)
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(
        Walk, "choose", lambda walk, entries, then, now: later.append(lambda: then(entries, now))
    )
    led.look()
    led.care.end()
    later.pop()()
    assert led.proposed == []


def test_a_pass_about_dead_messages_counts_none_that_are_leased(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(monkeypatch, do="redrive", spread_ms=0, filter=DEAD)
    led.timeline.leased = lambda: page_of(2)
    led.look()
    assert skipped(led) == {}


def test_what_is_skipped_in_two_ways_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(monkeypatch, do="shift", by_ms=10)
    led.care.tick(at(2))
    applied(led, RecordKind.NACK, 50)
    for _ in range(2):
        page(led, page_of(1, due=1, expires=5))
    assert (led.ways, skipped(led)) == (2, {"expiry": 1})


@pytest.mark.parametrize(
    ("due", "expires", "horizon_ms", "told"),
    [
        (DUE_MS_MAX - 10, 0, 0, {}),
        (DUE_MS_MAX - 9, 0, 0, {"horizon": 1}),
        (990, 0, 997, {}),
        (991, 0, 997, {"horizon": 1}),
        (10, 21, 0, {}),
        (10, 20, 0, {"expiry": 1}),
        (991, 20, 997, {"horizon": 1}),
    ],
)
def test_what_would_be_due_too_late_is_skipped_for_the_first_reason(
    monkeypatch: pytest.MonkeyPatch, due: int, expires: int, horizon_ms: int, told: dict[str, int]
) -> None:
    """The latest instant that the topic allows, or one before the expiry, is not too late."""
    led = Led(monkeypatch, do="shift", by_ms=10)
    context: Any = led
    context.clock = SimpleNamespace(mesh_now_us=lambda now: now.wall_us)
    led.settings.horizon_ms = horizon_ms
    led.care.tick(at(2))
    page(led, page_of(1, due=due, expires=expires))
    if not told:
        assert changed(led).due.tolist() == [due + 10]
    else:
        assert skipped(led) == told


# ---------------------------------------------------------------- what is written


def test_a_shift_to_before_the_beginning_of_time_ends_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(monkeypatch, do="shift", by_ms=-10)
    led.care.tick(at(2))
    page(led, page_of(1, due=7))
    assert changed(led).due.tolist() == [0]


def test_a_leader_that_goes_on_with_a_spread_begins_behind_what_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else what is left would get the instants of what is done."""
    found = []
    for done in (0, 1, 2):
        led = Led(monkeypatch, do="move", to_ms=1_000, spread_ms=1_000_000)
        led.timeline.passes.running.done = done
        led.care.tick(at(2))
        page(led, page_of(3 - done))
        found.append(changed(led).due.tolist())
    assert found[1] == found[0][1:]
    assert found[2] == found[0][2:]


def test_a_spread_goes_on_from_page_to_page(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[Then] = []

    def read(walk: Walk, then: Then) -> None:
        ways.append(then)
        walk.ended = len(ways) == 2

    monkeypatch.setattr(Walk, "read", read)
    led = Led(monkeypatch, do="move", to_ms=1_000, spread_ms=1_000_000)
    led.care.tick(at(2))
    ways[0](page_of(1), at(3))
    applied(led)
    ways[1](page_of(1), at(5))
    first, second = led.proposed
    assert first.due.tolist() != second.due.tolist()


def test_what_is_redriven_without_an_instant_is_due_now(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(monkeypatch, do="redrive", spread_ms=0, filter=DEAD)
    led.timeline.stamp = 77
    led.care.tick(at(2))
    page(led, page_of(1))
    record = changed(led)
    assert (record.kind, record.due.tolist(), len(record.token)) == (RecordKind.REDRIVE, [77], 0)


@pytest.mark.parametrize(
    ("state", "kind", "tokens"), [("dead", RecordKind.DISCARD, []), ("waiting", RecordKind.CANCEL, [0])]
)
def test_what_is_withdrawn_is_discarded_if_it_is_dead(
    monkeypatch: pytest.MonkeyPatch, state: str, kind: RecordKind, tokens: list[int]
) -> None:
    led = Led(monkeypatch, filter={"state": state})
    led.care.tick(at(2))
    page(led, page_of(1))
    assert (changed(led).kind, changed(led).token.tolist()) == (kind, tokens)


def test_a_change_gives_every_message_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(monkeypatch, do="change", rank=9)
    led.care.tick(at(2))
    page(led, page_of(2))
    assert changed(led).rank.tolist() == [9, 9]

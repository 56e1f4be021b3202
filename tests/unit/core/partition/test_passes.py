"""Care for passes: when the index is gone through once more."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dueq.core.partition import passes
from dueq.core.partition.passes import Passes
from dueq.core.ports.entry import FULL, NO_ENTRIES, Entries, State
from dueq.core.state.applied import Applied
from dueq.core.state.pass_table import Pass
from dueq.instant import Now
from dueq.limits import PASS_WALKS_MAX
from dueq_codecs.records import Record, RecordKind

UID = 1
Then = Callable[[Entries, Now], None]


def at(ms: int) -> Now:
    return Now(ms * 1000, ms * 1000)


class Led:
    """A led partition with one pass, and an index of one page in which nothing waits at first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **work: object) -> None:
        self.uid, self.serving = UID, True
        self.settings = SimpleNamespace(horizon_ms=0)
        running = Pass("p", 5, {"do": "cancel", "filter": {"state": "waiting"}} | work, 3)
        table = SimpleNamespace(running=running)
        self.jobs = SimpleNamespace(unrevealed=frozenset())
        self.timeline = SimpleNamespace(
            passes=table, applied=5, stamp=1, leased=lambda: NO_ENTRIES, jobs=self.jobs
        )
        self.checkpoints = SimpleNamespace(after=lambda then, now: then(frozenset(), now))
        self.ways = 0
        self.pages: list[Then] = []
        self.proposed: list[Record] = []
        monkeypatch.setattr(passes, "FilteredWalk", lambda *_: Walk(self))
        context: Any = self
        self.care = Passes(context, context)
        self.care.begin(at(1))

    def attend(self, uid: int) -> None:
        """It is ticked by the test."""

    def propose(self, record: Record, now: Now) -> int:
        self.proposed.append(record)
        return 100

    def look(self, *applied: RecordKind) -> None:
        """Go through the index; these records are applied meanwhile."""
        self.care.tick(at(2))
        for sequence, kind in enumerate(applied, 50):
            self.care.applied(Record(kind, UID, sequence, 1, 0), Applied(), at(2))
        self.pages.pop(0)(NO_ENTRIES, at(3))


class Walk:
    def __init__(self, led: Led) -> None:
        self._led = led
        self.ended, self.looked = False, 0

    def read(self, then: Then) -> None:
        self._led.ways += 1
        self.ended = True
        self._led.pages.append(then)

    def choose(self, entries: Entries, then: Then, now: Now) -> None:
        then(entries, now)


def test_a_pass_ends_after_one_way_if_nothing_was_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(monkeypatch)
    led.look(RecordKind.INSERT, RecordKind.LEASE, RecordKind.ACK)
    [record] = led.proposed
    assert (led.ways, json.loads(record.document)) == (1, {"do": "end", "skipped": {}})


@pytest.mark.parametrize(
    "kind", [RecordKind.NACK, RecordKind.RELEASE, RecordKind.EXPIRE, RecordKind.REVEAL], ids=str
)
def test_what_may_wait_behind_it_since_it_began_is_looked_for(
    kind: RecordKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    led = Led(monkeypatch)
    led.look(kind)
    assert (led.ways, led.proposed) == (2, [])
    led.look()
    assert (led.ways, len(led.proposed)) == (2, 1)


def test_what_is_given_back_while_the_checkpoint_is_written_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The index that is gone through is that of the checkpoint, and lacks it."""
    led, durable = Led(monkeypatch), list[Any]()
    led.checkpoints.after = lambda then, now: durable.append(then)
    led.care.tick(at(2))
    led.care.applied(Record(RecordKind.NACK, UID, 50, 1, 0), Applied(), at(2))
    durable.pop()(frozenset(), at(2))
    led.pages.pop(0)(NO_ENTRIES, at(3))
    assert (len(durable), led.proposed) == (1, [])


def test_it_ends_however_much_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(monkeypatch)
    for _ in range(PASS_WALKS_MAX):
        led.look(RecordKind.EXPIRE)
    assert (led.ways, len(led.proposed)) == (PASS_WALKS_MAX, 1)


def test_dead_messages_are_gone_through_once_whatever_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given back waits. A message whose key another one has is counted in each way, so it would be twice."""
    led = Led(monkeypatch, do="redrive", spread_ms=0, filter={"state": "dead"})
    led.look(RecordKind.NACK, RecordKind.EXPIRE)
    assert (led.ways, len(led.proposed)) == (1, 1)


def test_it_begins_when_the_jobs_that_were_committed_before_it_are_revealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would leave what is revealed behind the place that it has reached, in each of its ways."""
    led = Led(monkeypatch)
    for unrevealed in ({1, 2}, {2}, {2, 3}):
        led.jobs.unrevealed = frozenset(unrevealed)
        assert led.care.tick(at(2))
        assert led.ways == 0
    led.jobs.unrevealed = frozenset({3, 4})  # committed later: there may always be such
    led.look()
    assert (led.ways, len(led.proposed)) == (1, 1)


def test_what_is_spread_gets_the_instant_for_which_its_expiry_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that are skipped keep their places in the spread: else others would get instants beyond their expiry."""
    led = Led(monkeypatch, do="move", to_ms=1_000_000, spread_ms=1000)
    page = np.zeros(1000, FULL)
    page["state"], page["row"] = State.WAITING, np.arange(1000)
    page["expires"][::2] = 1_000_500
    led.care.tick(at(2))
    led.pages.pop(0)(page, at(3))
    led.timeline.applied = 100
    led.care.tick(at(4))
    moved, rest = led.proposed
    rows = np.concatenate((moved.target_row, rest.target_row))
    due = np.concatenate((moved.due, rest.due))
    assert 700 <= len(rows) <= 800
    assert (due[rows % 2 == 0] < 1_000_500).all()
    assert (due[rows % 2 == 1] >= 1_000_500).any()
